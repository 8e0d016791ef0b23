// `/device`: the page on which a person signs in and confirms the code of a device login. It is one document
// that loads nothing else; its content security policy allows the inline style and script by their hashes.
import type { FixedPage } from '../../kernel/http/pages/fixed-pages.ts';
import { calls } from './calls.ts';
import { colors } from './colors.ts';
import { script as deviceScript } from './device-script.ts';
import { documentHeaders, hashSource } from './document-headers.ts';
import { style as commonStyle } from './style.ts';

export const devicePath = '/device';

const deviceStyle = `
  [hidden] { display: none !important; }
  section { margin-top: 1.5rem; }
  section form { margin-top: 0; }
  #error { margin-top: 1.25rem; }
  #code-input { text-transform: uppercase; }
  .code-shown { margin: 0; font: 600 1.7rem ui-monospace, "SF Mono", Menlo, Consolas, monospace; letter-spacing: .12em; }
  .code-shown + p { color: var(--quiet); }
  a.main { font-weight: 600; line-height: 1.75; text-align: center; text-decoration: none; }
  h2 { margin: 0; font-size: 1.15rem; color: var(--well); }
  h2:focus { outline: none; }
  dl { display: grid; grid-template-columns: max-content 1fr; gap: .35rem 1rem; margin: 1.25rem 0 0; padding-top: 1.25rem;
    border-top: 1px solid var(--line); }
  dt { color: var(--quiet); }
  dd { margin: 0; overflow-wrap: anywhere; }
`;
const style = `${commonStyle}${deviceStyle}`;
const script = `'use strict';\n${calls}${colors}${deviceScript}`;

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
<body><main><div id="card">
<div id="mark" class="mark" aria-hidden="true" hidden></div>
<h1 id="title" tabindex="-1">Confirm a login</h1>
<p id="bureau" class="lead" hidden></p>
<noscript><p>This page needs JavaScript to sign you in. Without it, confirm with an API call:
<code>POST /v1/accounts/device/decide</code> with your user token and
<code>{"user_code": "…", "decision": "confirm"}</code>.</p></noscript>
<div id="app" hidden>
<p id="error" role="alert"></p>
<section id="code-step">
<form id="code-form" autocomplete="off">
<p>A program wants to act on your behalf. Enter the code that it shows.</p>
<label for="code-input">Code</label>
<input id="code-input" class="code" name="code" required maxlength="20" spellcheck="false" autocapitalize="characters"
  placeholder="WDJB-MJHT">
<button class="main">Continue</button>
</form>
</section>
<section id="login-step" hidden>
<p class="code-shown"></p>
<p>Sign in to see which program shows this code.</p>
<form id="login-form">
<div id="provider-row"><label for="provider">Sign in with</label><select id="provider" name="provider"></select></div>
<div id="inputs"></div>
<button class="main">Sign in</button>
</form>
</section>
<section id="browser-step" hidden>
<p>Sign in on the page of the other service. It shows this code:</p>
<p id="compare" class="code-shown"></p>
<form id="browser-form">
<a id="browser-link" class="main" target="_blank" rel="noopener noreferrer" autofocus>Open the sign-in page</a>
<button class="other">I have signed in</button>
</form>
</section>
<section id="decide-step" hidden>
<p class="code-shown"></p>
<p>Confirm only if your own terminal shows this code now. If someone sent you here, refuse.</p>
<dl id="facts"></dl>
<form id="decide-form">
<button class="main" value="confirm">Confirm</button>
<button class="other" value="cancel" autofocus>Refuse</button>
</form>
</section>
<section id="end-step" hidden>
<h2 id="end-title" tabindex="-1"></h2>
<p id="end-text"></p>
</section>
</div>
</div></main>
<script>${script}</script>
</body>
</html>
`;

export const devicePage: FixedPage = {
  body,
  headers: documentHeaders({ style: hashSource(style), script: hashSource(script) }),
};
