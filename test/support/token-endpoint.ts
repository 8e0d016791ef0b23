// A scripted token endpoint of OAuth 2.0, for Microsoft Entra ID and for Google's service accounts.
// It verifies the assertion of a service account with the public half of its generated key.
import { createPublicKey, generateKeyPairSync, type KeyObject, verify } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { closeServer, listen, readBody } from './local-server.ts';

export interface TokenEndpoint {
  url: string;
  /** The forms of the requests so far. */
  requests: URLSearchParams[];
  /** The next answers; without one the endpoint issues a token. */
  answers: { status: number; body: string; delayMs?: number }[];
  /** Seconds until issued tokens expire. */
  lifetimeSeconds: number;
  /** A key file of a service account whose `token_uri` is this endpoint. */
  keyFile: string;
  close(): Promise<void>;
}

export const clientSecret = 'CANARY-7d31-client-secret';

export async function startTokenEndpoint(): Promise<TokenEndpoint> {
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const publicKey = createPublicKey(privateKey);

  const server = createServer((request, response) => {
    serve(request, response).catch(() => response.destroy());
  });

  async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const form = new URLSearchParams((await readBody(request)).toString());
    endpoint.requests.push(form);
    const answer = endpoint.answers.shift();
    if (answer?.delayMs !== undefined) await sleep(answer.delayMs, undefined, { ref: false });
    response.setHeader('content-type', 'application/json');
    if (answer !== undefined) response.writeHead(answer.status).end(answer.body);
    else if (!isGranted(form, publicKey, endpoint.url))
      response.writeHead(400).end('{"error":"invalid_grant"}');
    else
      response.end(
        JSON.stringify({
          access_token: `token-${endpoint.requests.length}`,
          token_type: 'Bearer',
          expires_in: endpoint.lifetimeSeconds,
        }),
      );
  }

  const url = `${(await listen(server)).url}/token`;
  const endpoint: TokenEndpoint = {
    url,
    requests: [],
    answers: [],
    lifetimeSeconds: 3600,
    keyFile: JSON.stringify({
      type: 'service_account',
      client_email: 'ada@acme.iam.gserviceaccount.com',
      private_key_id: 'key-1',
      private_key: privateKey.export({ type: 'pkcs8', format: 'pem' }),
      token_uri: url,
    }),
    close: () => closeServer(server),
  };
  return endpoint;
}

/** Whether the form has the client's secret, or an assertion that the service account's key has signed. */
function isGranted(form: URLSearchParams, publicKey: KeyObject, tokenUrl: string): boolean {
  if (form.get('grant_type') === 'client_credentials') return form.get('client_secret') === clientSecret;
  const [header = '', claims = '', signature = ''] = (form.get('assertion') ?? '').split('.');
  const { iss, aud, scope, iat, exp } = decodePart(claims);
  return (
    form.get('grant_type') === 'urn:ietf:params:oauth:grant-type:jwt-bearer' &&
    verify('sha256', Buffer.from(`${header}.${claims}`), publicKey, Buffer.from(signature, 'base64url')) &&
    decodePart(header)['alg'] === 'RS256' &&
    iss === 'ada@acme.iam.gserviceaccount.com' &&
    aud === tokenUrl &&
    scope === 'https://www.googleapis.com/auth/cloud-platform' &&
    Math.abs(Number(iat) - Date.now() / 1000) < 60 &&
    Number(exp) - Number(iat) === 3600
  );
}

function decodePart(part: string): Record<string, unknown> {
  return JSON.parse(Buffer.from(part, 'base64url').toString()) as Record<string, unknown>;
}
