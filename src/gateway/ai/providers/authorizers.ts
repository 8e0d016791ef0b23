// The authorizer of each provider whose requests need more than a key in a header.
import type { Clock } from '../../../kernel/clock.ts';
import { signRequest } from '../../../kernel/secrets/aws-signature.ts';
import type { AwsCredentials, Credentials } from '../catalog/credentials.ts';
import type { ProviderEntry } from '../catalog/models-file.ts';
import type { Authorizer } from '../upstream/authorizer.ts';
import type { Upstream } from '../upstream/client.ts';
import { adapterOfKind } from './adapters.ts';
import { createAccessTokens, unusableSecret, type TokenRequest } from './credentials/access-tokens.ts';
import { entraIdRequest } from './credentials/entra-id.ts';
import { serviceAccountRequest } from './credentials/service-account.ts';

export interface AuthorizerOptions {
  env: { get(key: string): string | undefined };
  upstream: Upstream;
  clock: Pick<Clock, 'now' | 'monotonicMs'>;
}

/** Returns undefined for a provider that takes its key in the header of the format. */
export function createAuthorizers(
  options: AuthorizerOptions,
): (entry: ProviderEntry) => Authorizer | undefined {
  // Keyed by the entry object, so that a reloaded models file starts without cached tokens.
  const authorizers = new WeakMap<ProviderEntry, Authorizer>();
  return (entry) => {
    const { keyHeader } = adapterOfKind(entry.kind);
    if (entry.credentials === undefined) return keyHeader && apiKeyHeader(keyHeader);
    const existing = authorizers.get(entry);
    if (existing !== undefined) return existing;
    const authorizer = authorizerOf(entry, entry.credentials, options);
    authorizers.set(entry, authorizer);
    return authorizer;
  };
}

function apiKeyHeader(name: string): Authorizer {
  return { headers: ({ apiKey = '' }) => ({ [name]: apiKey }), secrets: () => [] };
}

function authorizerOf(
  entry: ProviderEntry,
  credentials: Credentials,
  options: AuthorizerOptions,
): Authorizer {
  switch (credentials.type) {
    case 'aws':
      return awsSignatures(entry, credentials, options);
    case 'entra_id':
      return bearerTokens({ key: credentials.client_secret_env }, options, (secret) =>
        entraIdRequest(credentials, secret),
      );
    case 'service_account':
      return bearerTokens({ key: credentials.key_env, project: entry.project }, options, (keyFile) =>
        serviceAccountRequest(keyFile, options.clock.now()),
      );
  }
}

function awsSignatures(
  { region = '' }: ProviderEntry,
  credentials: AwsCredentials,
  { env, clock }: AuthorizerOptions,
): Authorizer {
  const {
    access_key_id_env: idKey,
    secret_access_key_env: secretKey,
    session_token_env: tokenKey,
  } = credentials;
  return {
    headers({ url, method, body }) {
      const keys = {
        accessKeyId: requireSecret(env, idKey),
        secretAccessKey: requireSecret(env, secretKey),
        sessionToken: tokenKey === undefined ? undefined : requireSecret(env, tokenKey),
      };
      return signRequest({ method, url, body }, keys, { region, service: 'bedrock', now: clock.now() });
    },
    secrets: () => [idKey, secretKey, tokenKey].map((key) => (key === undefined ? key : env.get(key))),
  };
}

function bearerTokens(
  { key, project }: { key: string; project?: string | undefined },
  { env, upstream, clock }: AuthorizerOptions,
  request: (secret: string) => TokenRequest,
): Authorizer {
  const tokens = createAccessTokens({ upstream, clock, request });
  return {
    headers: async () => ({ authorization: `Bearer ${await tokens.token(requireSecret(env, key))}` }),
    discard: tokens.discard,
    secrets: () => [env.get(key), tokens.current(), project],
  };
}

function requireSecret(env: AuthorizerOptions['env'], key: string): string {
  const secret = env.get(key) ?? '';
  if (secret === '') throw unusableSecret('one of their variables is not set');
  return secret;
}
