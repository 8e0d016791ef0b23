// The local edition that was started in this folder: its addresses and its token files.
import { agentSettings } from '../../agent/config.ts';
import { consoleSettings } from '../../console/config.ts';
import { gatewaySettings } from '../../gateway/config.ts';
import { describeRunning } from '../data/running-server.ts';
import type { Surface } from './operations.ts';
import type { Identity } from './profiles.ts';

export interface LocalServer {
  url: string;
  /** The identity that the token in the file belongs to. */
  caller: Identity;
  tokenFile: string;
  /** Whether the server runs now, on the data in this folder. */
  isRunning: boolean;
}

/** The addresses that the servers listen on by default. */
export const defaultUrls: Record<Surface, string> = {
  gateway: agentSettings.gatewayUrl.fallback,
  agent: consoleSettings.agentUrl.fallback,
};

/** The addresses that the running edition reports over its control socket; without one, the defaults. */
export async function readLocalServers(): Promise<Record<Surface, LocalServer>> {
  const running = await describeRunning(`${gatewaySettings.databasePath.fallback}/control.sock`);
  const server = (surface: Surface, caller: Identity, tokenFile: string): LocalServer => ({
    caller,
    url: running?.[surface] ?? defaultUrls[surface],
    tokenFile,
    isRunning: typeof running?.[surface] === 'string',
  });
  return {
    gateway: server('gateway', 'user', 'data/local.token'),
    agent: server('agent', 'agent', 'data/agent/agent.token'),
  };
}
