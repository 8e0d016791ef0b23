// The local edition that was started in this folder: its addresses and the files of its tokens.
import { agentSettings } from '../../agent/config.ts';
import { consoleSettings } from '../../console/config.ts';
import { gatewaySettings } from '../../gateway/config.ts';
import { describeRunning } from '../data/running-server.ts';
import type { Surface } from './operations.ts';
import type { Identity } from './profiles.ts';

export interface LocalServer {
  url: string;
  /** The owner of the token in the file. */
  caller: Identity;
  tokenFile: string;
  /** Whether it runs now, with the data in this folder. */
  isRunning: boolean;
}

/** The addresses where the settings name no others. */
export const defaultUrls: Record<Surface, string> = {
  gateway: agentSettings.gatewayUrl.fallback,
  agent: consoleSettings.agentUrl.fallback,
};

/** The addresses of the running edition, by its control socket, else the default ones. */
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
