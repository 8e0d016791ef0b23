// Entries of a models file for the kinds of providers that have their own credentials, all served by one
// scripted provider, and the signature check of an AWS server.
import { createHash, createHmac } from 'node:crypto';
import type { ProviderCall } from './provider.ts';
import { clientSecret, type TokenEndpoint } from './token-endpoint.ts';

export const awsKeys = {
  AWS_ID: 'AKIDEXAMPLE',
  AWS_SECRET: 'CANARY-41c0-aws-secret',
  AWS_TOKEN: 'CANARY-92fe-aws-session-token',
};

export const cloudKinds = ['azure', 'bedrock', 'vertex', 'vertex-anthropic'] as const;

/** A provider of each kind by the kind's name. */
export function cloudProviders(baseUrl: string, tokens: TokenEndpoint): Record<string, unknown>[] {
  const google = {
    base_url: baseUrl,
    project: 'acme',
    location: 'europe-west1',
    credentials: { type: 'service_account', key_env: 'GOOGLE_KEY_FILE' },
  };
  return [
    {
      id: 'azure',
      kind: 'azure',
      base_url: baseUrl,
      formats: [],
      credentials: {
        type: 'entra_id',
        tenant_id: 'tenant-1',
        client_id: 'client-1',
        client_secret_env: 'AZURE_SECRET',
        token_url: tokens.url,
      },
    },
    {
      id: 'bedrock',
      kind: 'bedrock',
      base_url: baseUrl,
      region: 'eu-central-1',
      credentials: {
        type: 'aws',
        access_key_id_env: 'AWS_ID',
        secret_access_key_env: 'AWS_SECRET',
        session_token_env: 'AWS_TOKEN',
      },
    },
    { id: 'vertex', kind: 'vertex', ...google },
    { id: 'vertex-anthropic', kind: 'vertex-anthropic', ...google },
  ];
}

export function cloudEnvironment(tokens: TokenEndpoint): Record<string, string> {
  return { ...awsKeys, AZURE_SECRET: clientSecret, GOOGLE_KEY_FILE: tokens.keyFile };
}

/** Whether the received request is signed with the secret, by the steps of AWS Signature Version 4. */
export function isSignedFor(call: ProviderCall, secret: string): boolean {
  const [, id, scope = '', names = '', signature] =
    /^AWS4-HMAC-SHA256 Credential=([^/]+)\/([^,]+), SignedHeaders=([^,]+), Signature=([0-9a-f]{64})$/.exec(
      call.headers.authorization ?? '',
    ) ?? [];
  const sha = (content: string | Buffer) => createHash('sha256').update(content).digest('hex');
  // The path arrives encoded once, and the canonical path is that encoded again.
  const path = call.path.replaceAll('%', '%25').replaceAll(/[^A-Za-z0-9/%._~-]/g, encodeURIComponent);
  const lines = names.split(';').map((name) => `${name}:${String(call.headers[name])}\n`);
  const canonicalRequest = `${call.method}\n${path}\n\n${lines.join('')}\n${names}\n${sha(call.body)}`;
  const text = `AWS4-HMAC-SHA256\n${String(call.headers['x-amz-date'])}\n${scope}\n${sha(canonicalRequest)}`;
  let key: string | Buffer = `AWS4${secret}`;
  for (const part of scope.split('/')) key = createHmac('sha256', key).update(part).digest();
  const expectedScope = `${String(call.headers['x-amz-date']).slice(0, 8)}/eu-central-1/bedrock/aws4_request`;
  const expectedSignature = createHmac('sha256', key).update(text).digest('hex');
  return scope === expectedScope && id === awsKeys.AWS_ID && signature === expectedSignature;
}
