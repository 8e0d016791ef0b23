// `/device`: the page on which a person signs in and confirms the code of a device login. One document that
// loads nothing else; the content security policy allows its style and its script by their hashes.
import { createHash } from 'node:crypto';
import type { FixedPage } from '../../kernel/http/pages/fixed-pages.ts';
import { script } from './script.ts';
import { style } from './style.ts';

export const devicePath = '/device';

const sha256 = (text: string): string => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;

const policy = [
  "default-src 'none'",
  `style-src ${sha256(style)}`,
  `script-src ${sha256(script)}`,
  "connect-src 'self'",
  'img-src data:',
  "form-action 'none'",
  "frame-ancestors 'none'",
  "base-uri 'none'",
  "require-trusted-types-for 'script'",
].join('; ');

const body = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<link rel="icon" href="data:,">
<title>Confirm a login</title>
<style>${style}</style>
</head>
<body><main>
<h1 id="title" tabindex="-1">Confirm a login</h1>
<noscript><p>This page needs a script to sign you in. Without one, confirm with a call:
<code>POST /v1/accounts/device/decide</code> with your user token and
<code>{"user_code": "…", "decision": "confirm"}</code>.</p></noscript>
<div id="app" hidden>
<section id="code-step">
<form id="code-form" autocomplete="off">
<p>A program wants to act for you. Enter the code that it shows.</p>
<label for="code-input">Code</label>
<input id="code-input" name="code" required maxlength="20" spellcheck="false" autocapitalize="characters" placeholder="WDJB-MJHT">
<div class="buttons"><button class="main">Continue</button></div>
</form>
</section>
<section id="login-step" hidden>
<p class="code"></p>
<p class="quiet">Sign in to see which program shows this code.</p>
<form id="login-form">
<div id="provider-row"><label for="provider">Sign in with</label><select id="provider" name="provider"></select></div>
<div id="inputs"></div>
<div class="buttons"><button class="main">Sign in</button></div>
</form>
</section>
<section id="browser-step" hidden>
<p>Sign in in the other tab. It shows this code:</p>
<p id="compare" class="compare"></p>
<form id="browser-form"><div class="buttons">
<a id="browser-link" class="button main" target="_blank" rel="noopener noreferrer" autofocus>Open the sign-in page</a>
<button>I have signed in</button>
</div></form>
</section>
<section id="decide-step" hidden>
<p class="quiet">Confirm only if your own terminal shows this code now. If someone sent you here, refuse.</p>
<p class="code"></p>
<dl id="facts"></dl>
<form id="decide-form"><div class="buttons">
<button class="main" value="confirm">Confirm</button>
<button value="cancel" autofocus>Refuse</button>
</div></form>
</section>
<section id="end-step" hidden>
<h2 id="end-title" tabindex="-1"></h2>
<p id="end-text"></p>
</section>
<p id="error" role="alert"></p>
</div>
</main>
<script>${script}</script>
</body>
</html>
`;

export const devicePage: FixedPage = {
  body,
  headers: {
    'content-type': 'text/html; charset=utf-8',
    'content-security-policy': policy,
    'cache-control': 'no-store',
    'referrer-policy': 'no-referrer',
    'x-frame-options': 'DENY',
    'cross-origin-opener-policy': 'same-origin',
  },
};
