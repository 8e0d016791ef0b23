// A console of its own for a test, for an agent or for nobody, and a browser's worth of its cookie.
import { createConsole, readConsoleConfig, type Console, type ConsoleConfig, type ConsoleNeeds } from '../../src/console/index.ts';
import { silentLog } from './databases.ts';

export interface TestConsole {
  url: string;
  console: Console;
  /** Opens an address as a browser does and gives back its cookie. */
  enter(): Promise<string>;
  /** Calls an operation as a page does. */
  call(operation: string, members: object, cookie: string, headers?: Record<string, string>): Promise<Response>;
  close(): Promise<void>;
}

export async function startConsole(agent: { url: string; tokenFile: string }, options: { config?: Partial<ConsoleConfig>; needs?: Partial<ConsoleNeeds> } = {}): Promise<TestConsole> {
  const config = readConsoleConfig({ port: '0', 'agent-url': agent.url, 'token-file': agent.tokenFile }, {});
  const console = await createConsole({ ...config, ...options.config }, { log: silentLog, ...options.needs });
  const { url } = await console.listen();
  return {
    url,
    console,
    async enter() {
      const opened = await fetch(console.invite(), { redirect: 'manual' });
      return (opened.headers.get('set-cookie') ?? '').split(';')[0] ?? '';
    },
    call: (operation, members, cookie, headers = {}) =>
      fetch(`${url}/call/${operation}`, { method: 'POST', headers: { 'content-type': 'application/json', origin: url, cookie, ...headers }, body: JSON.stringify(members) }),
    close: () => console.close(),
  };
}
