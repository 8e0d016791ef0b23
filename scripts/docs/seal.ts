// Makes a Redoc page keep to itself. What it does not need of the outside is taken out, each change guarded so that a
// new version of the tool which needs another one is noticed; what might be left, the browser refuses by the policy.

// Scripts and styles are in the page. `blob:` is the worker of its search; nothing may be fetched, framed or sent.
const policy = [
  "default-src 'none'",
  "script-src 'unsafe-inline'",
  "style-src 'unsafe-inline'",
  'img-src data:',
  'font-src data:',
  'worker-src blob:',
  "base-uri 'none'",
  "form-action 'none'",
].join('; ');

/** What the head of every page of the portal begins with: the policy, and an icon so that none is asked for. */
const sealedHead = `<meta http-equiv="Content-Security-Policy" content="${policy}"><meta name="referrer" content="no-referrer"><link rel="icon" href="data:,">`;

/** The same for pages of our own, whose style, script and index are files beside them, opened from a server or from a disk. */
const ownPolicy =
  "default-src 'none'; script-src 'self' file:; style-src 'self' file:; img-src 'self' data: file:; base-uri 'none'; form-action 'none'";
export const ownHead = `<meta http-equiv="Content-Security-Policy" content="${ownPolicy}"><meta name="referrer" content="no-referrer"><link rel="icon" href="data:,">`;

const wayBack =
  '<div style="background:#1c2430;padding:.35rem 1.5rem;font:15px system-ui,sans-serif"><a href="index.html" style="color:#fff">Townhall: guides and search</a></div>';

const replacements: readonly { what: string; from: RegExp; to: string }[] = [
  { what: 'the head of the page', from: /<head>/, to: `<head>${sealedHead}` },
  // Redoc knows of no page beside its own.
  { what: 'the body of the page', from: /<body>/, to: `<body>${wayBack}` },
  // The logo hides itself when it does not load; the words beside it then have to name the maker.
  { what: 'the logo', from: /https:\/\/cdn\.redoc\.ly\/redoc\/logo-mini(?:-full)?\.svg/g, to: 'data:,' },
  { what: 'the words beside the logo', from: /API docs by(?! Redoc)/g, to: 'API docs by Redoc' },
];

/** Takes a page of `redocly build-docs --inlineBundle`; throws when it is not of the shape that is known here. */
export function sealPage(html: string): string {
  if (!html.includes('"disableTelemetry":true'))
    throw new Error('the page would report how it is used; its telemetry is not off');
  return replacements.reduce((page, { what, from, to }) => {
    const sealed = page.replace(from, to);
    if (sealed === page)
      throw new Error(`${what} was not found in the page; the tool that makes it has changed`);
    return sealed;
  }, html);
}

/** Addresses on other hosts that a page would load of itself: scripts, styles, images, fonts, frames. */
export function findForeignAssets(html: string): string[] {
  const patterns = [
    /<(?:script|img|iframe|source|video|audio|embed|object)\b[^>]*?\s(?:src|data)=["']?(https?:\/\/[^"'\s>]+|\/\/[^"'\s>]+)/gi,
    /<link\b[^>]*?\shref=["']?(https?:\/\/[^"'\s>]+|\/\/[^"'\s>]+)/gi,
    /@import\s+(?:url\()?["']?(https?:\/\/[^"'\s)]+)/gi,
    /\burl\(["']?(https?:\/\/[^"'\s)]+)/gi,
    // In the script of the page: images and bundles that it would add.
    /\bsrc:(?:\w+\?)?[`"'](https?:\/\/[^`"']+)/g,
    /(https?:\/\/cdn\.redoc\.ly\/[^`"'\s]+)/g,
  ];
  return [
    ...new Set(patterns.flatMap((pattern) => Array.from(html.matchAll(pattern), (match) => match[1] ?? ''))),
  ];
}
