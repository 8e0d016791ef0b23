// `/login`: the page on which a person logs in to an app of another origin. The page gets a one-time code
// for the app and sends the browser back with it. The document and its script are two files of this server;
// nothing else is loaded.
import type { FixedPage } from '../../kernel/http/pages/fixed-pages.ts';
import { calls } from './calls.ts';
import { colors } from './colors.ts';
import { devicePage, devicePath } from './device.ts';
import { documentHeaders, hashSource } from './document-headers.ts';
import { elements } from './elements.ts';
import { script } from './script.ts';
import { style } from './style.ts';
import { views } from './views.ts';

const body = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<link rel="icon" href="data:,">
<title>Sign in</title>
<style>${style}</style>
<script src="login.js" defer></script>
</head>
<body><main>
<div id="card" aria-busy="true">
<noscript><h1>Sign in</h1><p>This page needs JavaScript to sign you in. Turn it on for this address and reload the page.</p></noscript>
</div>
</main></body>
</html>
`;

const page: FixedPage = {
  body,
  headers: documentHeaders({ style: hashSource(style), script: "'self'" }),
};

const scriptFile: FixedPage = {
  body: `'use strict';\n${calls}${elements}${colors}${views}${script}`,
  headers: {
    'content-type': 'text/javascript; charset=utf-8',
    'cache-control': 'no-cache',
    'cross-origin-resource-policy': 'same-origin',
  },
};

export const loginPages: readonly (readonly [path: string, page: FixedPage])[] = [
  ['/login', page],
  ['/login.js', scriptFile],
  [devicePath, devicePage],
];
