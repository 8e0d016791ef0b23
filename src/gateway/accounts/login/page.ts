// The pages that a person's browser sees at the end of a redirect login. They hold no script, load nothing, and
// can be put into no frame; whatever comes from elsewhere is escaped.
import { createHash } from 'node:crypto';

/** What a page says. `form` asks the person to decide. */
export interface Page {
  title: string;
  paragraphs: readonly string[];
  form?: { confirmation: string; userCode: string };
}

export interface PageReply {
  content: Uint8Array;
  mediaType: 'text/html;charset=utf-8';
  headers: Record<string, string>;
}

const style = `
  body { font: 1.1rem/1.5 system-ui, sans-serif; margin: 0; color: #1c1c1e; background: #f4f4f5; }
  main { max-width: 28rem; margin: 12vh auto; padding: 2rem; background: #fff; border-radius: .75rem; }
  h1 { font-size: 1.3rem; margin: 0 0 1rem; }
  .code { font: 600 1.8rem ui-monospace, monospace; letter-spacing: .1em; margin: 1rem 0; }
  button { font: inherit; padding: .6rem 1.1rem; margin-right: .5rem; border: 1px solid #1c1c1e; border-radius: .5rem; background: #fff; cursor: pointer; }
  button.yes { background: #1c1c1e; color: #fff; }
  @media (prefers-color-scheme: dark) {
    body { color: #f4f4f5; background: #111; } main { background: #1c1c1e; }
    button { color: inherit; background: none; border-color: #777; } button.yes { background: #f4f4f5; color: #1c1c1e; }
  }
`;

const policy = [
  "default-src 'none'",
  `style-src 'sha256-${createHash('sha256').update(style).digest('base64')}'`,
  "form-action 'self'",
  "frame-ancestors 'none'",
  "base-uri 'none'",
].join('; ');

const headers = {
  'content-security-policy': policy,
  'cache-control': 'no-store',
  // The address of a callback carries secrets.
  'referrer-policy': 'no-referrer',
  'x-frame-options': 'DENY',
  'cross-origin-opener-policy': 'same-origin',
};

/** The headers of whatever answers a browser at the callback, a redirect included. */
export const pageHeaders: Readonly<Record<string, string>> = headers;

export function renderPage({ title, paragraphs, form }: Page): PageReply {
  const body = [
    `<h1>${escape(title)}</h1>`,
    ...paragraphs.map((text) => `<p>${escape(text)}</p>`),
    ...(form ? [renderForm(form)] : []),
  ].join('\n');
  const html = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>${escape(title)}</title>
<style>${style}</style>
</head>
<body><main>
${body}
</main></body>
</html>
`;
  return { content: Buffer.from(html), mediaType: 'text/html;charset=utf-8', headers };
}

// The address is relative to the callback's, so that it holds whatever path the server stands under.
function renderForm({ confirmation, userCode }: { confirmation: string; userCode: string }): string {
  return `<p class="code">${escape(userCode)}</p>
<form method="post" action="confirm">
<input type="hidden" name="confirmation" value="${escape(confirmation)}">
<button class="yes" name="decision" value="confirm">Yes, the codes are the same</button>
<button name="decision" value="cancel">No</button>
</form>`;
}

function escape(text: string): string {
  return text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}
