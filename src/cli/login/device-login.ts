// The device flow of the command line (RFC 8628): shows the code, opens the page, and polls until a decision.
import { setTimeout as wait } from 'node:timers/promises';
import { hostname } from 'node:os';
import { GatewayError, type GatewayClient } from '@townhall/gateway';
import { openInBrowser } from '../command-line/open-in-browser.ts';

export type DeviceCredential = Awaited<ReturnType<GatewayClient['accounts']['getDeviceLoginResult']>>;

export interface DeviceLoginOptions {
  client: GatewayClient;
  bureauId: string;
  /** The name that the page shows. */
  name: string;
  /** Requests an API key with these limits; without it, a user token is requested. */
  key?: { models?: string[]; credit_cap?: number; ttl?: number };
  opensBrowser: boolean;
  printError: (line: string) => void;
  signal: AbortSignal;
}

/** Throws the server's refusal, the signal's reason, and an error when the code expires unconfirmed. */
export async function loginByDevice(options: DeviceLoginOptions): Promise<DeviceCredential> {
  const { client, bureauId, name, key, printError, signal } = options;
  const login = await client.accounts.startDeviceLogin(
    { bureau_id: bureauId, name, ...(key === undefined ? {} : { key }) },
    { signal },
  );
  printError(`Open    ${login.verification_uri}`);
  printError(`Code    ${login.user_code}`);
  printError(
    `Waiting for your confirmation, ${Math.round(login.expires_in / 60)} minutes at most. Ctrl-C cancels.`,
  );
  if (options.opensBrowser) openInBrowser(login.verification_uri_complete, printError);
  const expiresMs = performance.now() + login.expires_in * 1000;
  let intervalMs = login.interval * 1000;
  for (;;) {
    await wait(intervalMs, undefined, { signal });
    try {
      return await client.accounts.getDeviceLoginResult({ device_code: login.device_code }, { signal });
    } catch (error) {
      if (!GatewayError.isInstance(error)) throw error;
      // RFC 8628, section 3.5: each slow_down adds five seconds to the interval.
      if (error.code === 'slow_down') intervalMs += 5000;
      else if (error.code !== 'authorization_pending' && !error.retryable) throw error;
      if (performance.now() >= expiresMs) throw unconfirmedError(error);
    }
  }
}

/** The error for a code that expired unconfirmed; `cause` is the error of the last poll. */
function unconfirmedError(cause: GatewayError): Error {
  const message = `the code has expired without a confirmation; start again. Last answer: ${cause.message}`;
  return new Error(message, { cause });
}

/** A name that the person recognizes, in characters that the server accepts: at most 100, printable ASCII. */
export function deviceName(program: string): string {
  return `${program} on ${hostname()}`.replaceAll(/[^ -~]/g, '?').slice(0, 100);
}
