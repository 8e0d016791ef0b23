// The addresses that server commands listen on. An address that cannot be used is reported with what to do about it.
import type { AgentConfig } from '../../agent/config.ts';
import type { GatewayConfig } from '../../gateway/config.ts';
import { requireFreePort } from '../../kernel/http/free-port.ts';

interface ListenAddress {
  /** The setting that chooses the port. */
  setting: string;
  host: string;
  port: number;
}

type AddressSettings = Pick<GatewayConfig | AgentConfig, 'host' | 'port' | 'metricsHost' | 'metricsPort'>;

/** Where `townhall gateway` listens. */
export function gatewayAddresses(config: AddressSettings): ListenAddress[] {
  return addressesOf(config, { port: 'PORT', metricsPort: 'METRICS_PORT' });
}

/** Where `townhall agent` listens. */
export function agentAddresses(config: AddressSettings): ListenAddress[] {
  return addressesOf(config, { port: 'AGENT_PORT', metricsPort: 'AGENT_METRICS_PORT' });
}

function addressesOf(
  { host, port, metricsHost, metricsPort }: AddressSettings,
  settings: { port: string; metricsPort: string },
): ListenAddress[] {
  const api = { setting: settings.port, host, port };
  if (metricsPort === undefined) return [api];
  return [api, { setting: settings.metricsPort, host: metricsHost, port: metricsPort }];
}

/** Tries every address before anything is opened. Rejects for the first that cannot be used. */
export async function requireAddresses(addresses: readonly ListenAddress[]): Promise<void> {
  for (const address of addresses) await explainListenErrors(requireFreePort(address), [address]);
}

/** Waits for a server that starts to listen. A refused address rejects with the setting that chooses another one. */
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
    const setting = (addresses.findLast((each) => each.port === port) ?? addresses[0])?.setting ?? 'PORT';
    throw new Error(sentenceFor({ code, port, host: address ?? hostname, setting }), { cause });
  }
}

function sentenceFor({
  code,
  port,
  host,
  setting,
}: {
  code: string | undefined;
  port: number | undefined;
  host: string | undefined;
  setting: string;
}): string {
  if (code === 'EADDRINUSE')
    return `The port ${port} is taken: "townhall doctor" says by whom. Stop that program, or give another port with ${setting}; 0 takes any free one.`;
  if (code === 'EACCES')
    return `This user may not open the port ${port}; give one above 1023 with ${setting}.`;
  return `"${host}" is no address of this machine (${code}); give one of its own with ${setting.replace('PORT', 'HOST')}, or 0.0.0.0 for all.`;
}

/** Awaits the work; when it fails, closes first what was opened for it. */
export async function closingOnFailure<T>(work: Promise<T>, close: () => Promise<void>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    await close().catch(() => undefined);
    throw error;
  }
}
