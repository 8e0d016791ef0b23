// The credentials of a provider in the models file, instead of API keys (provider-keys.ts). The file
// contains only names of environment variables, and ids that are not secret.

/** Requests are signed with AWS Signature Version 4. */
export interface AwsCredentials {
  type: 'aws';
  access_key_id_env: string;
  secret_access_key_env: string;
  /** The variable with the session token of temporary credentials. */
  session_token_env?: string;
}

/** Requests carry a token that Microsoft Entra ID issues to an application. */
export interface EntraIdCredentials {
  type: 'entra_id';
  tenant_id: string;
  client_id: string;
  client_secret_env: string;
  /** A different token endpoint, for example of a sovereign cloud. */
  token_url?: string;
  scope?: string;
}

/** Requests carry a token that Google issues to a service account. */
export interface ServiceAccountCredentials {
  type: 'service_account';
  /** The variable with the key file of the account, as JSON. */
  key_env: string;
}

export type Credentials = AwsCredentials | EntraIdCredentials | ServiceAccountCredentials;

export const environmentKey = { type: 'string', pattern: '^[A-Z][A-Z0-9_]{0,127}$' };
const entraName = { type: 'string', pattern: '^[A-Za-z0-9.-]{1,128}$' };

/** The JSON Schema of `Credentials` by type. */
export const credentialSchemas = {
  aws: {
    type: 'object',
    required: ['type', 'access_key_id_env', 'secret_access_key_env'],
    properties: {
      type: { const: 'aws' },
      access_key_id_env: environmentKey,
      secret_access_key_env: environmentKey,
      session_token_env: environmentKey,
    },
    additionalProperties: false,
  },
  entra_id: {
    type: 'object',
    required: ['type', 'tenant_id', 'client_id', 'client_secret_env'],
    properties: {
      type: { const: 'entra_id' },
      tenant_id: entraName,
      client_id: entraName,
      client_secret_env: environmentKey,
      token_url: { type: 'string', pattern: '^https?://' },
      scope: { type: 'string', minLength: 1, maxLength: 256 },
    },
    additionalProperties: false,
  },
  service_account: {
    type: 'object',
    required: ['type', 'key_env'],
    properties: { type: { const: 'service_account' }, key_env: environmentKey },
    additionalProperties: false,
  },
} as const satisfies Record<Credentials['type'], object>;

/** The variable with the secret itself, by which the operator tells credentials apart. */
export function secretEnv(credentials: Credentials): string {
  switch (credentials.type) {
    case 'aws':
      return credentials.secret_access_key_env;
    case 'entra_id':
      return credentials.client_secret_env;
    case 'service_account':
      return credentials.key_env;
  }
}

/** All variables of the credentials; calls need each of them. */
export function credentialEnvs(credentials: Credentials): string[] {
  if (credentials.type !== 'aws') return [secretEnv(credentials)];
  const { access_key_id_env: id, secret_access_key_env: secret, session_token_env: token } = credentials;
  return [id, secret, ...(token === undefined ? [] : [token])];
}
