"""The words of the demo site and the sentences made from them."""

from __future__ import annotations

import re

from shoal.demo.seeded_random import SeededRandom

_GAPS = re.compile("[^a-z0-9]+")

CATEGORIES = (
    "Harbour Mysteries", "Quiet Science", "Garden Almanacs", "Night Trains", "Kitchen Histories",
    "Small Islands", "Clockwork Tales", "Letters Never Sent", "Maps and Walks", "Weather Stories",
    "Slow Travel", "Odd Trades", "Winter Reading", "Young Explorers", "Music and Noise",
    "Birds Explained", "Old Computers", "Paper Crafts", "Sea Poems", "Unlikely Cooks",
)  # fmt: skip

ADJECTIVES = (
    "Patient", "Crooked", "Salted", "Borrowed", "Silver", "Seventh", "Wandering", "Hollow", "Amber",
    "Reluctant", "Drowsy", "Painted", "Northern", "Unfinished", "Brass", "Invisible", "Gentle",
    "Stubborn", "Folded", "Midnight", "Faithful", "Tangled", "Modest", "Upside-Down",
)  # fmt: skip

NOUNS = (
    "Lighthouse", "Compass", "Orchard", "Ferryman", "Kettle", "Observatory", "Heron", "Typewriter",
    "Lantern", "Beekeeper", "Staircase", "Harvest", "Cartographer", "Accordion", "Greenhouse",
    "Postcard", "Umbrella", "Tide", "Locksmith", "Pendulum", "Sparrow", "Ledger", "Bakery", "Meadow",
)  # fmt: skip

PLACES = (
    "Cinder Bay", "Lower Marl", "Saint Orrin", "the Pale Hills", "Brackwater", "Wren Street",
    "the Ninth Ward", "Tolliver's Point", "the Glass Quarter", "Eastermoor", "Hagley Lock",
    "Port Amity", "the Long Meadow", "Quern Valley", "Fallow Bridge", "Upper Sedge",
)  # fmt: skip

FIRST = (
    "Mara", "Ivo", "Tess", "Anselm", "Petra", "Odile", "Ruben", "Kaia", "Linus", "Greta", "Tomas",
    "Esme", "Viggo", "Nadia", "Bruno", "Saskia", "Emil", "Ottilie", "Jonas", "Freya", "Caspar", "Wanda",
    "Milo", "Alma", "Hugo", "Irene", "Felix", "Yara", "Silas", "Juno", "Oskar", "Livia", "Rafe", "Thea",
    "Boris", "Cleo", "Arvid", "Nell", "Dario", "Hedda",
)  # fmt: skip

LAST = (
    "Quill", "Ashdown", "Ferrow", "Lindqvist", "Marchbank", "Tolland", "Okoro", "Varga", "Penhale",
    "Sorrel", "Brandt", "Ishida", "Castell", "Dunmore", "Elster", "Farran", "Grieve", "Halloway",
    "Imre", "Jessop", "Kestrel", "Lomax", "Moravec", "Nightingale", "Orme", "Pascoe", "Quince",
    "Rowntree", "Salter", "Thorne", "Umber", "Vance", "Whitlock", "Yarrow", "Zeller", "Abara", "Birch",
    "Corrigan", "Delacroix", "Eames",
)  # fmt: skip

TRADES = (
    "clock repairer", "ferry pilot", "night baker", "map restorer", "bird counter", "piano tuner",
    "retired diver", "letter carrier", "weather clerk", "bookbinder", "tram conductor", "botanist",
)  # fmt: skip

SENTENCES = (
    "In {place} a {trade} finds a {noun} that nobody admits to having lost.",
    "For {count} years the {noun} has stood in {place}, and for {count} years it has been wrong.",
    "The {trade} keeps two notebooks: one for the facts, and a thicker one for {place}.",
    "Every chapter opens with a {noun} and ends with a bill for its repair.",
    "What begins as an errand to {place} turns into the longest week of a very orderly life.",
    "Nobody here hurries, least of all the {trade}, and the reader soon gives up hurrying too.",
    "There are {count} drawings, all of them made on the spot and most of them in the rain.",
    "The author walked the road to {place} {count} times, and the footnotes know every puddle.",
    "A {adjective} {noun} is not an easy thing to love, which is rather the point.",
    "By the middle of the book the {noun} has changed hands {count} times and its price only once.",
    "It is a book for people who read timetables for pleasure and distrust short cuts.",
    "The second part leaves {place} behind and follows the money, the {noun} and a very tired dog.",
    "Readers who skip the appendix will miss the only honest recipe in it.",
    "Between the {noun} and the harbour wall there is room for exactly one secret.",
    "An index of {count} entries makes it useful; the jokes hidden in that index make it dear.",
    "Some of it is even true, and the {trade} has signed a statement to say which part.",
)

OPINIONS = (
    "Read it on the night ferry and missed my stop.",
    "My {trade} neighbour borrowed it and will not give it back.",
    "The map of {place} is worth the price alone.",
    "Slow in the middle, but so is the road to {place}.",
    "I wanted more about the {noun} and less about the weather.",
    "A present for someone who already owns a {noun}.",
    "The print is large, the ideas are not small.",
    "Two evenings, one pot of tea, no regrets.",
    "Sent it to {place}, where they tell me it is now required reading.",
    "The ending surprised me, and I had read the last page first.",
)

SAYINGS = (
    "A {noun} is only {adjective} until somebody needs it.",
    "I came in for a {noun} and left with {count} books.",
    "You can tell a {trade} by the state of the umbrella.",
    "Nothing in {place} is far away, except {place}.",
    "Never lend a {noun} to a {trade}.",
    "The {adjective} ones are always on the lowest shelf.",
    "If it rains in {place}, we open; if it does not, we dust.",
    "Ask for the {noun}. They keep it behind the counter.",
    "My grandmother had {count} rules, and most of them were about the {noun}.",
    "A good {trade} reads the end first.",
)


def fill(rng: SeededRandom, template: str) -> str:
    """A template with every slot filled by a fresh choice."""
    choices = {
        "place": lambda: rng.choice(PLACES),
        "trade": lambda: rng.choice(TRADES),
        "noun": lambda: rng.choice(NOUNS).lower(),
        "adjective": lambda: rng.choice(ADJECTIVES).lower(),
        "count": lambda: str(rng.between(3, 48)),
    }
    text = template
    while "{" in text:
        before, _, rest = text.partition("{")
        slot, _, after = rest.partition("}")
        text = before + choices[slot]() + after
    return _articles(text)


def _articles(text: str) -> str:
    """Put "an" before a vowel where a slot made it necessary."""
    words = text.split(" ")
    for at, word in enumerate(words[:-1]):
        if word in ("a", "A") and words[at + 1][:1].lower() in "aeiou":
            words[at] = word + "n"
    return " ".join(words)


def _plural(noun: str) -> str:
    if noun.endswith("man"):
        return noun[:-3] + "men"
    return noun[:-1] + "ies" if noun.endswith("y") else noun + "s"


def title(rng: SeededRandom) -> str:
    adjective, noun, place = rng.choice(ADJECTIVES), rng.choice(NOUNS), rng.choice(PLACES)
    shapes = (
        f"The {adjective} {noun}",
        f"The {noun} of {place}",
        f"{adjective} {_plural(noun)}",
        f"A {noun} in {place}",
        f"The {adjective} {noun} & Other Stories",
        f"How to Mend a {adjective} {noun}",
        f"{noun}: A History",
        f"Beyond {place}",
    )
    return _articles(rng.choice(shapes))


def paragraph(rng: SeededRandom, sentences: int) -> str:
    return " ".join(fill(rng, template) for template in rng.sample(SENTENCES, sentences))


def slug(text: str) -> str:
    """Lower-case words joined by hyphens; never an underscore."""
    return _GAPS.sub("-", text.lower().replace("'", "")).strip("-")
