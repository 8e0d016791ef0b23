// How a server command opens its ports: an address that cannot be had is told with what to do about it, and whatever
// was started before then is ended, so that the command ends too.

import type { AgentConfig } from '../../agent/config.ts';
import type { GatewayConfig } from '../../gateway/config.ts';
import { requireFreePort } from '../../kernel/http/free-port.ts';

/** Rejects, where the system refuses an address, in words that name the setting by which another one is taken. */
export async function opened<T>(
  listening: Promise<T>,
  settingOf: (port: number | undefined) => string,
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
    const setting = settingOf(port);
    if (code === 'EADDRINUSE') {
      throw new Error(
        `The port ${port} is taken: "townhall doctor" says by whom. Stop that program, or give another port with ${setting}; 0 takes any free one.`,
        { cause },
      );
    }
    if (code === 'EACCES')
      throw new Error(`This user may not open the port ${port}; give one above 1023 with ${setting}.`, {
        cause,
      });
    throw new Error(
      `"${address ?? hostname}" is no address of this machine (${code}); give one of its own with ${setting.replace('PORT', 'HOST')}, or 0.0.0.0 for all.`,
      { cause },
    );
  }
}

interface ListenAddress {
  /** The setting that takes another port. */
  setting: string;
  host: string;
  port: number;
}

/** Where `townhall gateway` listens by its settings. */
export function gatewayAddresses({
  host,
  port,
  metricsHost,
  metricsPort,
}: Pick<GatewayConfig, 'host' | 'port' | 'metricsHost' | 'metricsPort'>): ListenAddress[] {
  return [
    { setting: 'PORT', host, port },
    ...(metricsPort === undefined ? [] : [{ setting: 'METRICS_PORT', host: metricsHost, port: metricsPort }]),
  ];
}

/** Where `townhall agent` listens by its settings. */
export function agentAddresses({
  host,
  port,
  metricsHost,
  metricsPort,
}: Pick<AgentConfig, 'host' | 'port' | 'metricsHost' | 'metricsPort'>): ListenAddress[] {
  return [
    { setting: 'AGENT_PORT', host, port },
    ...(metricsPort === undefined
      ? []
      : [{ setting: 'AGENT_METRICS_PORT', host: metricsHost, port: metricsPort }]),
  ];
}

/** Asks the system for every address before anything else is opened. Rejects as `opened` does, for the first that cannot be had. */
export async function requireAddresses(addresses: readonly ListenAddress[]): Promise<void> {
  for (const { setting, host, port } of addresses)
    await opened(requireFreePort({ host, port }), () => setting);
}

/** Closes what was opened for nothing. */
export async function orClosed<T>(work: Promise<T>, close: () => Promise<void>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    await close().catch(() => undefined);
    throw error;
  }
}
