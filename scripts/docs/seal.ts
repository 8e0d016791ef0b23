// Removes external requests from a Redoc page. Each replacement throws when its text is missing, so
// that a new version of Redoc which needs another one is noticed. The content security policy
// blocks any request that is left.

// Scripts and styles are inline. `blob:` is the worker of Redoc's search; fetches, frames and forms
// are blocked.
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

/** Start of the head of every page: the policy, and an empty icon so that browsers request none. */
const sealedHead = `<meta http-equiv="Content-Security-Policy" content="${policy}"><meta name="referrer" content="no-referrer"><link rel="icon" href="data:,">`;

/**
 * The policy of our own pages, whose style, script and index are files beside them, on a server or
 * a disk.
 */
const ownPolicy =
  "default-src 'none'; script-src 'self' file:; style-src 'self' file:; img-src 'self' data: file:; base-uri 'none'; form-action 'none'";
export const ownHead = `<meta http-equiv="Content-Security-Policy" content="${ownPolicy}"><meta name="referrer" content="no-referrer"><link rel="icon" href="data:,">`;

const wayBack =
  '<div style="background:#1c2430;padding:.35rem 1.5rem;font:15px system-ui,sans-serif"><a href="index.html" style="color:#fff">Townhall: guides and search</a></div>';

const replacements: readonly { name: string; from: RegExp; to: string }[] = [
  { name: 'the head of the page', from: /<head>/, to: `<head>${sealedHead}` },
  // Redoc has no link to other pages.
  { name: 'the body of the page', from: /<body>/, to: `<body>${wayBack}` },
  // The logo hides itself when it does not load, so the text beside it has to name Redoc.
  { name: 'the logo', from: /https:\/\/cdn\.redoc\.ly\/redoc\/logo-mini(?:-full)?\.svg/g, to: 'data:,' },
  { name: 'the words beside the logo', from: /API docs by(?! Redoc)/g, to: 'API docs by Redoc' },
];

/**
 * Seals a page of `redocly build-docs --inlineBundle`; throws when the page has another structure.
 */
export function sealPage(html: string): string {
  if (!html.includes('"disableTelemetry":true'))
    throw new Error('the page would report how it is used; its telemetry is not off');
  return replacements.reduce((page, { name, from, to }) => {
    const sealedPage = page.replace(from, to);
    if (sealedPage === page)
      throw new Error(`${name} was not found in the page; the tool that makes it has changed`);
    return sealedPage;
  }, html);
}

/**
 * Addresses on other hosts that a page would load by itself: scripts, styles, images, fonts,
 * frames.
 */
export function findForeignAssets(html: string): string[] {
  const patterns = [
    /<(?:script|img|iframe|source|video|audio|embed|object)\b[^>]*?\s(?:src|data)=["']?(https?:\/\/[^"'\s>]+|\/\/[^"'\s>]+)/gi,
    /<link\b[^>]*?\shref=["']?(https?:\/\/[^"'\s>]+|\/\/[^"'\s>]+)/gi,
    /@import\s+(?:url\()?["']?(https?:\/\/[^"'\s)]+)/gi,
    /\burl\(["']?(https?:\/\/[^"'\s)]+)/gi,
    // Images and bundles that the page's script would add.
    /\bsrc:(?:\w+\?)?[`"'](https?:\/\/[^`"']+)/g,
    /(https?:\/\/cdn\.redoc\.ly\/[^`"'\s]+)/g,
  ];
  return [
    ...new Set(patterns.flatMap((pattern) => Array.from(html.matchAll(pattern), (match) => match[1] ?? ''))),
  ];
}
