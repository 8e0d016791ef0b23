// The listen addresses of server commands. An unusable address is reported with advice.
import type { AgentConfig } from '../../agent/config.ts';
import type { ConsoleConfig } from '../../console/index.ts';
import type { GatewayConfig } from '../../gateway/config.ts';
import { requireFreePort } from '../../kernel/http/free-port.ts';

interface ListenAddress {
  /** The setting that chooses the port. */
  setting: string;
  host: string;
  port: number;
}

type AddressSettings = Pick<GatewayConfig | AgentConfig, 'host' | 'port' | 'metricsHost' | 'metricsPort'>;

/** The listen addresses of `townhall gateway`. */
export function gatewayAddresses(config: AddressSettings): ListenAddress[] {
  return addressesOf(config, { port: 'PORT', metricsPort: 'METRICS_PORT' });
}

/** The listen addresses of `townhall agent`. */
export function agentAddresses(config: AddressSettings): ListenAddress[] {
  return addressesOf(config, { port: 'AGENT_PORT', metricsPort: 'AGENT_METRICS_PORT' });
}

/** The listen address of the console beside `townhall start`. */
export function consoleAddress({ port }: Pick<ConsoleConfig, 'port'>): ListenAddress {
  return { setting: 'CONSOLE_PORT', host: '127.0.0.1', port };
}

function addressesOf(
  { host, port, metricsHost, metricsPort }: AddressSettings,
  settings: { port: string; metricsPort: string },
): ListenAddress[] {
  const api = { setting: settings.port, host, port };
  if (metricsPort === undefined) return [api];
  return [api, { setting: settings.metricsPort, host: metricsHost, port: metricsPort }];
}

/** Checks every address before a server opens anything. Rejects for the first unusable address. */
export async function requireAddresses(addresses: readonly ListenAddress[]): Promise<void> {
  for (const address of addresses) await explainListenErrors(requireFreePort(address), [address]);
}

/**
 * Waits for a server to listen. If its address cannot be used, rejects with the setting that changes it.
 */
export async function explainListenErrors<T>(
  listening: Promise<T>,
  addresses: readonly ListenAddress[],
): Promise<T> {
  try {
    return await listening;
  } catch (cause) {
    const { syscall, code, port, address, hostname } = cause as NodeJS.ErrnoException & {
      port?: number;
      address?: string;
      hostname?: string;
    };
    if (syscall !== 'listen' && syscall !== 'getaddrinfo') throw cause;
    const setting =
      (addresses.findLast((candidate) => candidate.port === port) ?? addresses[0])?.setting ?? 'PORT';
    throw new Error(describeFailure({ code, port, host: address ?? hostname, setting }), { cause });
  }
}

interface ListenFailure {
  code: string | undefined;
  port: number | undefined;
  host: string | undefined;
  setting: string;
}

function describeFailure({ code, port, host, setting }: ListenFailure): string {
  if (code === 'EADDRINUSE')
    return `The port ${port} is taken: "townhall doctor" names the program. Stop that program, or set another port with ${setting}; 0 uses any free one.`;
  if (code === 'EACCES')
    return `This user may not open the port ${port}; set one above 1023 with ${setting}.`;
  return `"${host}" is not an address of this machine (${code}); set one of its addresses with ${setting.replace('PORT', 'HOST')}, or 0.0.0.0 for all.`;
}
