"""Pages by a real browser: Chromium, driven by Playwright, behind the gateway."""
