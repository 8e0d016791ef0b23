// HTML pages that a server renders for a browser. They contain no script, load nothing, cannot be
// framed and are not cached.
import { createHash } from 'node:crypto';

export interface HtmlPage {
  title: string;
  /** Markup. The caller must escape all text in it with `escapeHtml`. */
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
  :root { color-scheme: light dark; --ink: #1c2430; --line: #dfe3ea; --field: #8a94a3; --ground: #f4f4f1; --card: #fff; }
  @media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --line: #333b47; --field: #6b7686; --ground: #12161b;
    --card: #1b212a; } }
  body { font: 16px/1.5 system-ui, sans-serif; margin: 0; color: var(--ink); background: var(--ground); }
  main { box-sizing: border-box; max-width: 27rem; margin: 12vh auto; padding: 2.25rem; border: 1px solid var(--line);
    border-radius: 16px; background: var(--card); overflow-wrap: anywhere; }
  h1 { font-size: 1.5rem; line-height: 1.25; letter-spacing: -.015em; margin: 0 0 1rem; }
  a { color: inherit; }
  .code { font: 600 1.7rem ui-monospace, "SF Mono", Menlo, Consolas, monospace; letter-spacing: .12em; margin: 1rem 0; }
  button { display: block; width: 100%; min-height: 2.9rem; margin-top: .7rem; border: 1px solid var(--field);
    border-radius: 10px; background: none; color: inherit; font: inherit; font-weight: 600; cursor: pointer; }
  button.yes { border-color: var(--ink); background: var(--ink); color: var(--card); }
  :focus-visible { outline: 3px solid #5b8de0; outline-offset: 2px; }
  @media (max-width: 30rem) { body { background: var(--card); } main { margin: 0; padding: 2.5rem 1.25rem; border: 0; } }
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
