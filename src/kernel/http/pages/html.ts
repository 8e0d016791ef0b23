// HTML pages that a server renders for a browser. They contain no script, load nothing, cannot be
// framed and are not cached; foreign text is escaped.
import { createHash } from 'node:crypto';

export interface HtmlPage {
  title: string;
  /** Markup with escaped foreign text. */
  body: string;
  /** The browser reloads the page after this time. */
  refreshSeconds?: number;
}

export interface HtmlReply {
  content: Uint8Array;
  mediaType: 'text/html;charset=utf-8';
  headers: Record<string, string>;
}

const style = `
  body { font: 1.1rem/1.5 system-ui, sans-serif; margin: 0; color: #1c1c1e; background: #f4f4f5; }
  main { max-width: 28rem; margin: 12vh auto; padding: 2rem; background: #fff; border-radius: .75rem; }
  h1 { font-size: 1.3rem; margin: 0 0 1rem; }
  a { color: inherit; }
  .code { font: 600 1.8rem ui-monospace, monospace; letter-spacing: .1em; margin: 1rem 0; }
  button { font: inherit; padding: .6rem 1.1rem; margin-right: .5rem; border: 1px solid #1c1c1e;
    border-radius: .5rem; background: #fff; cursor: pointer; }
  button.yes { background: #1c1c1e; color: #fff; }
  @media (prefers-color-scheme: dark) {
    body { color: #f4f4f5; background: #111; }
    main { background: #1c1c1e; }
    button { color: inherit; background: none; border-color: #777; }
    button.yes { background: #f4f4f5; color: #1c1c1e; }
  }
`;

const policy = [
  "default-src 'none'",
  `style-src 'sha256-${createHash('sha256').update(style).digest('base64')}'`,
  "form-action 'self'",
  "frame-ancestors 'none'",
  "base-uri 'none'",
].join('; ');

/** Headers of every response at the address of such a page, including redirects. */
export const pageHeaders: Readonly<Record<string, string>> = {
  'content-security-policy': policy,
  'cache-control': 'no-store',
  // The addresses of these pages contain secrets.
  'referrer-policy': 'no-referrer',
  'x-frame-options': 'DENY',
  'cross-origin-opener-policy': 'same-origin',
};

export function renderHtml({ title, body, refreshSeconds }: HtmlPage): HtmlReply {
  const refresh =
    refreshSeconds === undefined ? '' : `\n<meta http-equiv="refresh" content="${refreshSeconds}">`;
  const html = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">${refresh}
<title>${escapeHtml(title)}</title>
<style>${style}</style>
</head>
<body><main>
<h1>${escapeHtml(title)}</h1>
${body}
</main></body>
</html>
`;
  return { content: Buffer.from(html), mediaType: 'text/html;charset=utf-8', headers: { ...pageHeaders } };
}

/** Escapes text for an element or a quoted attribute. */
export function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}
