// Checks the members of a provider in the models file that decide where it is called and with which secrets:
// its address, endpoints, keys and credentials.
import type { AddressMembers, PassthroughFormatName } from '../providers/adapter/provider-adapter.ts';
import { adapterOfKind, type ProviderKind } from '../providers/adapters.ts';
import { keysAtEndpoints, maxKeysAtEndpoints, type ProviderKeys } from './provider-keys.ts';

export interface CallableProvider extends ProviderKeys, AddressMembers {
  kind: ProviderKind;
  base_url?: string;
  formats: PassthroughFormatName[];
}

/** Throws with the path of a member below the provider and the rule that it breaks. */
export type RefuseMember = (member: string, reason: string) => never;

export function checkAccess(provider: CallableProvider, refuse: RefuseMember): void {
  checkAddress(provider, refuse);
  checkCredentials(provider, refuse);
  checkUrls(provider, refuse);
  checkKeys(provider, refuse);
}

/**
 * Removes trailing slashes from the addresses of a provider, and adds the base URL that its other members
 * determine, such as a region.
 */
export function withAddresses<T extends Omit<CallableProvider, 'formats'>>(provider: T): T {
  const { kind, base_url: url, endpoints } = provider;
  const { address } = adapterOfKind(kind);
  const hasAllMembers = address?.members.every((member) => provider[member] !== undefined) === true;
  const baseUrl = url ?? (hasAllMembers ? address.baseUrl(provider as Required<AddressMembers>) : undefined);
  return {
    ...provider,
    ...(baseUrl === undefined ? {} : { base_url: withoutSlash(baseUrl) }),
    ...(endpoints === undefined
      ? {}
      : {
          endpoints: endpoints.map((endpoint) => ({
            ...endpoint,
            base_url: withoutSlash(endpoint.base_url),
          })),
        }),
  };
}

function withoutSlash(address: string): string {
  return address.replace(/\/+$/, '');
}

function checkAddress(provider: CallableProvider, refuse: RefuseMember): void {
  const { kind, formats, base_url: baseUrl, endpoints } = provider;
  const { address, defaults } = adapterOfKind(kind);
  if (address === undefined) return;
  // The paths of these kinds contain the model, so their address serves no other format.
  if (defaults.formats.length === 0 && formats.length > 0)
    refuse('formats', `does not apply to the kind ${kind}, whose calls are translated`);
  const isReplaceable = address.isReplaceable === true;
  if (isReplaceable && (baseUrl ?? endpoints) !== undefined) return;
  const missingMember = address.members.find((member) => provider[member] === undefined);
  if (missingMember !== undefined)
    refuse(missingMember, `is required for the kind ${kind}${isReplaceable ? ' without a base_url' : ''}`);
}

function checkCredentials(provider: CallableProvider, refuse: RefuseMember): void {
  const { kind, credentials, endpoints } = provider;
  const { credentialTypes = [], takesNoApiKey = false, address } = adapterOfKind(kind);
  const keyMember = memberWithKey(provider);
  if (keyMember !== undefined && takesNoApiKey)
    refuse(keyMember, `does not apply to the kind ${kind}, which requires credentials`);
  if (credentials === undefined) return requireKeys(provider, refuse);
  if (keyMember !== undefined)
    refuse(keyMember, 'cannot be combined with credentials; a provider has either keys or credentials');
  if (credentialTypes.length === 0)
    refuse('credentials', `does not apply to the kind ${kind}; set api_key_env or keys`);
  if (!credentialTypes.includes(credentials.type))
    refuse('credentials.type', `must be ${credentialTypes.join(' or ')} for the kind ${kind}`);
  const tokenUrl = credentials.type === 'entra_id' ? credentials.token_url : undefined;
  if (tokenUrl !== undefined && !isPlainUrl(tokenUrl)) refuse('credentials.token_url', plainUrlRule);
  if (endpoints !== undefined && address !== undefined && address.isReplaceable !== true)
    refuse(
      'endpoints',
      `cannot be combined with credentials for the kind ${kind}, whose calls contain the ` +
        `${address.members.at(-1)}; declare a provider for each endpoint, and name the models of one ` +
        'provider as fallbacks of the other',
    );
}

/** A kind that supports credentials is never called without credentials or keys. */
function requireKeys(provider: CallableProvider, refuse: RefuseMember): void {
  const { credentialTypes = [], takesNoApiKey = false } = adapterOfKind(provider.kind);
  if (credentialTypes.length === 0) return;
  if (memberWithKey(provider) === undefined)
    refuse('credentials', takesNoApiKey ? 'is required' : 'or api_key_env is required');
  const withoutKey = keysAtEndpoints(provider).find(({ keyEnv }) => keyEnv === undefined);
  const index = (provider.endpoints ?? []).findIndex(({ base_url: url }) => url === withoutKey?.baseUrl);
  if (withoutKey !== undefined)
    refuse(`endpoints[${index}].api_key_env`, 'is required without keys of the provider');
}

/** The first member that names an API key. */
function memberWithKey({ api_key_env: ownKey, keys, endpoints = [] }: ProviderKeys): string | undefined {
  if (ownKey !== undefined) return 'api_key_env';
  if (keys !== undefined) return 'keys';
  const index = endpoints.findIndex(({ api_key_env: key }) => key !== undefined);
  return index < 0 ? undefined : `endpoints[${index}].api_key_env`;
}

function checkUrls(
  { kind, base_url: baseUrl = '', endpoints }: CallableProvider,
  refuse: RefuseMember,
): void {
  if (adapterOfKind(kind).isLocal === true) return;
  if (endpoints === undefined && !isPlainUrl(baseUrl)) refuse('base_url', plainUrlRule);
  for (const [index, { base_url: address }] of (endpoints ?? []).entries())
    if (!isPlainUrl(address)) refuse(`endpoints[${index}].base_url`, plainUrlRule);
}

const plainUrlRule = 'must be an http or https address without credentials, query and fragment';

function isPlainUrl(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const { username, password, search, hash } = new URL(text);
  return [username, password, search, hash].every((part) => part === '');
}

function checkKeys(provider: ProviderKeys, refuse: RefuseMember): void {
  const { api_key_env: ownKey, keys, endpoints } = provider;
  if (keys !== undefined && ownKey !== undefined)
    refuse('api_key_env', 'cannot be combined with `keys`; name the variable in one of the two');
  const names = (keys ?? []).map(({ env }) => env);
  const repeatedIndex = names.findIndex((name, index) => names.indexOf(name) < index);
  if (repeatedIndex >= 0) refuse(`keys[${repeatedIndex}].env`, `"${names[repeatedIndex]}" is named twice`);
  const addresses = (endpoints ?? []).map(({ base_url: address }) => address);
  const repeatedAddress = addresses.findIndex((address, index) => addresses.indexOf(address) < index);
  if (repeatedAddress >= 0)
    refuse(`endpoints[${repeatedAddress}].base_url`, `"${addresses[repeatedAddress]}" is named twice`);
  const count = keysAtEndpoints(provider).length;
  if (count > maxKeysAtEndpoints)
    refuse(
      'endpoints',
      `with the keys there are ${count} combinations of an endpoint and a key; ` +
        `at most ${maxKeysAtEndpoints} are allowed`,
    );
}
