// The local edition that was started in this folder: its addresses and the files of its tokens.
import { agentSettings } from '../../agent/config.ts';
import { consoleSettings } from '../../console/config.ts';
import { gatewaySettings } from '../../gateway/config.ts';
import { callControl } from '../../kernel/control.ts';
import { asRecord } from '../../kernel/json-value.ts';
import type { Surface } from './operations.ts';

export interface LocalServer {
  url: string;
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
  const addresses = await readAddresses();
  const server = (surface: Surface, tokenFile: string): LocalServer => {
    const url = addresses[surface];
    return typeof url === 'string'
      ? { url, tokenFile, isRunning: true }
      : { url: defaultUrls[surface], tokenFile, isRunning: false };
  };
  return { gateway: server('gateway', 'data/local.token'), agent: server('agent', 'data/agent/agent.token') };
}

/** Empty where no edition runs here, or one of an older version. */
async function readAddresses(): Promise<Readonly<Record<string, unknown>>> {
  try {
    const socket = `${gatewaySettings.databasePath.fallback}/control.sock`;
    return asRecord(await callControl(socket, 'server.addresses', null));
  } catch {
    return {};
  }
}
