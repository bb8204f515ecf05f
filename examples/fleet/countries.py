"""An existing function as a scraper, unchanged: one call for each country.

shoal run examples/fleet/countries.py -o prices.csv      run it again to resume where it stopped
"""

import time

import shoal


def prices(country, products=3):
    """Stands for an existing script that knows nothing about shoal."""
    rows = []
    for number in range(products):
        time.sleep(0.01)
        rows.append({"country": country, "product": number, "price": 10 + number})
    return rows


scraper = shoal.wrap(prices, "prices", payloads=[{"country": name} for name in ("in", "my", "ru")])
