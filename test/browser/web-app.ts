// An app of another origin for browser tests: one page with one bundled program.
import { createServer } from 'node:http';
import path from 'node:path';
import { build } from 'esbuild';
import { listen } from '../support/local-server.ts';

const root = path.join(import.meta.dirname, '../..');

export interface WebApp {
  origin: string;
  /** The address of its page, which the login page returns to. */
  address: string;
  /** Bundles the program that the page runs from now on. */
  run(source: string, loader?: 'ts' | 'tsx'): Promise<void>;
  close(): void;
}

export async function startWebApp(): Promise<WebApp> {
  let program = '';
  const server = createServer((request, response) => {
    const isProgram = request.url === '/app.js';
    response.writeHead(200, { 'content-type': isProgram ? 'text/javascript' : 'text/html' });
    response.end(isProgram ? program : page);
  });
  const { url: origin } = await listen(server);
  return {
    origin,
    address: `${origin}/`,
    async run(source, loader = 'ts') {
      const { outputFiles } = await build({
        stdin: { contents: source, loader, resolveDir: root },
        bundle: true,
        format: 'esm',
        platform: 'browser',
        // The examples and @townhall/react each have a copy of React, but a page needs a single one.
        alias: {
          react: path.join(root, 'node_modules/react'),
          'react-dom': path.join(root, 'examples/node_modules/react-dom'),
        },
        jsx: 'automatic',
        define: { 'process.env.NODE_ENV': '"production"' },
        write: false,
      });
      program = outputFiles[0]?.text ?? '';
    },
    close: () => server.close(),
  };
}

const page = `<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Shop</title><meta name="viewport" content="width=device-width"></head>
<body><script type="module" src="/app.js"></script></body>
</html>`;

interface ProgramOptions {
  url: string;
  bureauId: string;
  /** An expression for where the page keeps its session. */
  storage?: 'sessionStorage' | 'localStorage';
}

/** A program without a framework: it shows the user, asks a model and signs out. */
export const plainProgram = ({ url, bureauId, storage = 'sessionStorage' }: ProgramOptions): string => `
  import { createWebLogin } from '@townhall/gateway';
  const login = createWebLogin({ ...${JSON.stringify({ baseUrl: url, bureauId })}, storage: ${storage} });
  const add = (tag: string, textContent: string, onclick?: () => unknown) =>
    document.body.append(Object.assign(document.createElement(tag), { textContent, onclick }));
  function render() {
    const { user, endReason } = login.state();
    document.body.replaceChildren();
    if (user === null) {
      if (endReason !== null) add('p', 'Your session has ended: ' + endReason);
      add('button', 'Sign in', () => login.signIn());
      add('button', 'Create an account', () => login.signIn({ screen: 'register' }));
      return;
    }
    add('p', 'Hello ' + (user.display_name ?? user.email));
    add('button', 'Sign out', () => login.signOut());
    add('button', 'Ask', async () => {
      const answer = await login.client.ai.generateText({ model: 'local/echo', prompt: 'Good morning' });
      for (const part of answer.parts) if (part.type === 'text') add('p', part.text);
    });
  }
  login.subscribe(render);
  login.handle().catch((error: Error) => add('p', error.message));
`;
