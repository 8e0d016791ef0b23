// The API key of a connected tool: created with the stored login of the profile, or by a device login.
import { readFile } from 'node:fs/promises';
import { GatewayError } from '@townhall/gateway';
import { deviceName, loginByDevice } from '../login/device-login.ts';
import { gatewayClient, type ServerChoice } from '../login/server.ts';

export interface KeyRequest {
  /** The name of the tool, which becomes a part of the key's name. */
  title: string;
  bureauId: string;
  limits: { models?: string[]; credit_cap?: number; ttl?: number };
  opensBrowser: boolean;
  printError: (line: string) => void;
  signal: AbortSignal;
}

/** Creates the key, with the stored login or after a confirmation in a browser. */
export async function requestKey(
  { url, profile }: ServerChoice,
  request: KeyRequest,
): Promise<{ token: string; expiresAt: string }> {
  const name = deviceName(request.title);
  const file = profile.url === url ? profile.token_file : undefined;
  const login = file === undefined ? '' : (await readFile(file, 'utf8').catch(() => '')).trim();
  if (login !== '') {
    try {
      const client = gatewayClient(url, login);
      const key = await client.accounts.createKey({ name, ...request.limits }, { signal: request.signal });
      return { token: key.user_token, expiresAt: key.expires_at };
    } catch (error) {
      if (!GatewayError.isInstance(error) || error.status !== 401) throw error;
      request.printError('The stored login is no longer valid; confirm this key instead.');
    }
  }
  const { limits, ...requestWithoutLimits } = request;
  const credential = await loginByDevice({
    ...requestWithoutLimits,
    client: gatewayClient(url),
    name,
    key: limits,
  });
  return { token: credential.user_token, expiresAt: credential.expires_at };
}

/** Returns false if the key was no longer valid, or the server does not answer. */
export async function revokeKey(url: string, token: string): Promise<boolean> {
  return gatewayClient(url, token)
    .accounts.logout()
    .then(
      () => true,
      () => false,
    );
}
