// A console for one test, with or without an agent, and the key of a page.
import {
  createConsole,
  readConsoleConfig,
  type Console,
  type ConsoleConfig,
  type ConsoleOptions,
} from '../../src/console/index.ts';
import { silentLog } from './databases.ts';

export interface TestConsole {
  url: string;
  console: Console;
  /** Exchanges a one-time code for a key as a page does. */
  logIn(): Promise<string>;
  /** Calls an operation as a page does; an empty key sends none. */
  call(operation: string, members: object, key: string, headers?: Record<string, string>): Promise<Response>;
  close(): Promise<void>;
}

export async function startConsole(
  agent: { url: string; tokenFile: string },
  options: { config?: Partial<ConsoleConfig>; createOptions?: Partial<ConsoleOptions> } = {},
): Promise<TestConsole> {
  const config = readConsoleConfig({ port: '0', 'agent-url': agent.url, 'token-file': agent.tokenFile }, {});
  const console = await createConsole(
    { ...config, ...options.config },
    { log: silentLog, ...options.createOptions },
  );
  const { url } = await console.listen();
  return {
    url,
    console,
    async logIn() {
      const { key } = (await (await redeem(console.loginUrl())).json()) as { key: string };
      return key;
    },
    call: (operation, members, key, headers = {}) =>
      fetch(`${url}/call/${operation}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', origin: url, ...bearer(key), ...headers },
        body: JSON.stringify(members),
      }),
    close: () => console.close(),
  };
}

export const bearer = (key: string): Record<string, string> =>
  key === '' ? {} : { authorization: `Bearer ${key}` };

/** Exchanges the code of a login address as its page does. */
export function redeem(address: string): Promise<Response> {
  const { origin, searchParams } = new URL(address);
  return fetch(`${origin}/open`, {
    method: 'POST',
    headers: { origin, 'content-type': 'application/json' },
    body: JSON.stringify({ code: searchParams.get('code') }),
  });
}
