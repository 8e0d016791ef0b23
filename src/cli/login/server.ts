// The server and the profile of `townhall login`, `logout` and `connect`.
import { createGatewayClient, type GatewayClient } from '@townhall/gateway';
import { SettingError } from '../../kernel/settings.ts';
import { readProfiles, requireProfileName, type Environment, type Profile } from '../call/profiles.ts';
import { readLocalServers } from '../call/local-edition.ts';

export interface ServerChoice {
  url: string;
  /** The name of the profile, which need not exist yet. */
  name: string;
  profile: Profile;
}

/** Takes the address from --url, TOWNHALL_URL, the profile or the local edition, in this order. */
export async function chooseServer(
  options: { url: string | undefined; profile: string | undefined },
  env: Environment,
): Promise<ServerChoice> {
  const { current, profiles } = await readProfiles(env);
  const requestedName = options.profile ?? (env['TOWNHALL_PROFILE'] || undefined);
  if (requestedName !== undefined) requireProfileName(requestedName);
  const address = options.url ?? (env['TOWNHALL_URL'] || undefined);
  const usedName = requestedName ?? (address === undefined ? current : null);
  const profile = usedName !== null && Object.hasOwn(profiles, usedName) ? profiles[usedName] : undefined;
  const url = requireUrl(address ?? profile?.url ?? (await readLocalServers()).gateway.url);
  const name = usedName ?? profileNameOf(url);
  return {
    url,
    name,
    profile: profile ?? (Object.hasOwn(profiles, name) ? profiles[name] : undefined) ?? {},
  };
}

const loopbackNames = ['127.0.0.1', 'localhost', '[::1]'];

/** A profile's default name: the host, or `local` for this machine. */
function profileNameOf(url: string): string {
  const { hostname } = new URL(url);
  return loopbackNames.includes(hostname) ? 'local' : hostname.replaceAll(/[^\w.-]/g, '-').slice(0, 64);
}

function requireUrl(text: string): string {
  const url = URL.parse(text);
  if (url === null || !/^https?:$/.test(url.protocol))
    throw new SettingError(`"${text}" is not an address such as http://127.0.0.1:43127.`);
  if (url.protocol === 'http:' && !loopbackNames.includes(url.hostname))
    throw new SettingError(`${text} would send credentials unencrypted; use an address with https.`);
  return text.replace(/\/+$/, '');
}

/** A client with a deadline for each call. */
export function gatewayClient(url: string, token?: string): GatewayClient {
  return createGatewayClient({ baseUrl: url, timeoutMs: 30_000, ...(token === undefined ? {} : { token }) });
}
