// Removes external requests from a Redoc page. Each replacement throws when its text is missing, so that a
// new version of Redoc with a different page is noticed. The content security policy blocks any remaining
// request.

import { createHash } from 'node:crypto';
import { markPath } from './mark.ts';

// Scripts and styles of Redoc are inline. `blob:` is the worker of Redoc's search; fetches, frames
// and forms are blocked.
const redocPolicy = [
  "default-src 'none'",
  "script-src 'unsafe-inline'",
  "style-src 'unsafe-inline'",
  'img-src data:',
  'font-src data:',
  'worker-src blob:',
  "base-uri 'none'",
  "form-action 'none'",
].join('; ');

function writePolicy(policy: string): string {
  const policyTag = `<meta http-equiv="Content-Security-Policy" content="${policy}">`;
  return `${policyTag}<meta name="referrer" content="no-referrer">`;
}

const iconPath = `<path fill="#a3432a" d="${markPath}"/>`;
const iconDrawing = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24">${iconPath}</svg>`;

/** A browser requests /favicon.ico from the server unless the page has an icon. */
const icon = `<link rel="icon" href="data:image/svg+xml,${encodeURIComponent(iconDrawing)}">`;

/**
 * Applies the chosen colors before the first paint. Redoc stores its choice under the same name.
 */
const themeScript =
  "try{const m=localStorage.getItem('redoc.colorMode');" +
  "if(m==='light'||m==='dark')document.documentElement.dataset.theme=m}catch{}";
const themeDigest = createHash('sha256').update(themeScript).digest('base64');

/**
 * The head of our own pages, whose style, script and index are files beside them, on a server or a
 * disk. `connections` are the servers that a page may call; most pages call none.
 */
export function writeOwnHead(connections = ''): string {
  const policy = [
    "default-src 'none'",
    `script-src 'self' file: 'sha256-${themeDigest}'`,
    "style-src 'self' file:",
    "img-src 'self' data: file:",
    ...(connections === '' ? [] : [`connect-src ${connections}`]),
    "base-uri 'none'",
    "form-action 'none'",
  ].join('; ');
  return `${writePolicy(policy)}${icon}<script>${themeScript}</script>`;
}

const replacements: readonly { name: string; from: RegExp; to: string }[] = [
  // Without its image the logo is hidden, so the text beside it has to name Redoc.
  { name: 'the logo', from: /https:\/\/cdn\.redoc\.ly\/redoc\/logo-mini(?:-full)?\.svg/g, to: 'data:,' },
  { name: 'the words beside the logo', from: /API docs by(?! Redoc)/g, to: 'API docs by Redoc' },
];

/**
 * Seals a page of `redocly build-docs --inlineBundle` and adds our header and colors; throws when
 * the page has another structure.
 */
export function sealPage(html: string, { header, style }: { header: string; style: string }): string {
  if (!html.includes('"disableTelemetry":true'))
    throw new Error('the page would report how it is used; its telemetry is not off');
  const additions = [
    { name: 'the head of the page', from: /<head>/, to: `<head>${writePolicy(redocPolicy)}${icon}` },
    { name: 'the end of the head', from: /<\/head>/, to: `<style>${style}</style></head>` },
    // Redoc has no link to other pages.
    { name: 'the body of the page', from: /<body>/, to: `<body>${header}` },
  ];
  return [...additions, ...replacements].reduce((page, { name, from, to }) => {
    const sealedPage = page.replace(from, () => to);
    if (sealedPage === page)
      throw new Error(`${name} was not found in the page; the tool that makes it has changed`);
    return sealedPage;
  }, html);
}

/**
 * Addresses on other hosts that a page would load by itself: scripts, styles, images, fonts,
 * frames.
 */
export function findExternalAssets(html: string): string[] {
  const patterns = [
    /<(?:script|img|iframe|source|video|audio|embed|object)\b[^>]*?\s(?:src|data)=["']?((?:https?:)?\/\/[^"'\s>]+)/gi,
    /<link\b[^>]*?\shref=["']?((?:https?:)?\/\/[^"'\s>]+)/gi,
    /@import\s+(?:url\()?["']?((?:https?:)?\/\/[^"'\s)]+)/gi,
    /\burl\(["']?((?:https?:)?\/\/[^"'\s)]+)/gi,
    // Images and bundles that the page's script would add.
    /\bsrc:(?:\w+\?)?[`"'](https?:\/\/[^`"']+)/g,
    /(https?:\/\/cdn\.redoc\.ly\/[^`"'\s]+)/g,
  ];
  return [
    ...new Set(patterns.flatMap((pattern) => Array.from(html.matchAll(pattern), (match) => match[1] ?? ''))),
  ];
}
