"""An existing function as a scraper, without a change to it: one call for each country.

shoal run examples/fleet/countries.py -o prices.csv      the same command goes on where it stopped
"""

import time

import shoal


def prices(country, products=3):
    """Stands for a script that exists already and knows nothing of shoal."""
    rows = []
    for number in range(products):
        time.sleep(0.01)
        rows.append({"country": country, "product": number, "price": 10 + number})
    return rows


scraper = shoal.wrap(prices, "prices", payloads=[{"country": name} for name in ("in", "my", "ru")])
