// A real OpenID provider in this process, and a scripted browser that performs its login. Tests can
// rewrite the ID tokens, signed with the provider's own key, to check that the gateway refuses them.
import { createSign, generateKeyPairSync, randomBytes, type KeyObject } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
/** @ts-ignore: the package comes without types; the interfaces below describe the part in use. */
import * as oidcProvider from 'oidc-provider';
import { closeServer, listen } from './local-server.ts';

interface Grant {
  addOIDCScope(scope: string): void;
  save(): Promise<string>;
}

interface Context {
  oidc: {
    provider: { Grant: new (ids: { clientId: string; accountId: string }) => Grant };
    client?: { clientId: string };
    session?: { accountId: string };
  };
}

interface Configuration {
  clients: object[];
  jwks: { keys: object[] };
  cookies: { keys: string[] };
  features: { devInteractions: { enabled: boolean } };
  pkce: { required(): boolean };
  claims: Record<string, string[]>;
  interactions: { url(context: Context, interaction: { uid: string }): string };
  findAccount(context: Context, id: string): { accountId: string; claims(): object };
  loadExistingGrant(context: Context): Promise<Grant>;
  ttl: Record<string, number>;
}

interface RealProvider {
  callback(): (request: IncomingMessage, response: ServerResponse) => Promise<void>;
  interactionFinished(
    request: IncomingMessage,
    response: ServerResponse,
    result: object,
    options: { mergeWithLastSubmission: boolean },
  ): Promise<void>;
}

const Provider = (oidcProvider as { default: unknown }).default as new (
  issuer: string,
  configuration: Configuration,
) => RealProvider;

export interface OidcAccount {
  sub: string;
  email?: string;
  email_verified?: boolean;
  name?: string;
}

type RewriteIdToken = (token: {
  header: Record<string, unknown>;
  claims: Record<string, unknown>;
  sign: (header: object, claims: object) => string;
}) => string;

export interface Oidc {
  issuer: string;
  clientId: string;
  clientSecret: string;
  /** The person who logs in. */
  account: OidcAccount;
  /** True when the person denies the login. */
  deniesLogin: boolean;
  /** Number of code exchanges, successful or not. */
  exchanges: number;
  /**
   * Changes the ID token: new claims are signed with the provider's key; a string is sent as it is.
   */
  rewriteIdToken: RewriteIdToken | undefined;
  /** Paths that get no answer. */
  hangingPaths: Set<string>;
  /**
   * Follows redirects from the address and returns the URL at which the browser leaves the
   * provider.
   */
  browse(url: string): Promise<URL>;
  close(): Promise<void>;
}

export async function startOidc(redirectUri: string): Promise<Oidc> {
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const jwk = { ...privateKey.export({ format: 'jwk' }), use: 'sig', alg: 'RS256', kid: 'test' };
  const clientId = 'townhall';
  const clientSecret = `CANARY-client-secret-${randomBytes(8).toString('hex')}`;
  const openResponses = new Set<ServerResponse>();

  let handle: (request: IncomingMessage, response: ServerResponse) => unknown = () => undefined;
  const server = createServer((request, response) => void handle(request, response));
  const { url: issuer } = await listen(server);

  const oidc: Oidc = {
    issuer,
    clientId,
    clientSecret,
    account: { sub: 'ada' },
    deniesLogin: false,
    exchanges: 0,
    rewriteIdToken: undefined,
    hangingPaths: new Set(),
    browse: (url) => browse(url, issuer),
    async close() {
      for (const response of openResponses) response.destroy();
      await closeServer(server);
    },
  };

  const provider = new Provider(issuer, configurationOf(oidc, redirectUri, jwk));
  const serve = provider.callback();

  handle = async (request, response) => {
    const { pathname } = new URL(request.url ?? '/', issuer);
    if (oidc.hangingPaths.has(pathname)) {
      openResponses.add(response);
      return;
    }
    if (pathname.startsWith('/interaction/')) {
      const answer = oidc.deniesLogin
        ? { error: 'access_denied', error_description: 'no' }
        : { login: { accountId: oidc.account.sub } };
      await provider.interactionFinished(request, response, answer, { mergeWithLastSubmission: false });
      return;
    }
    if (pathname === '/token') {
      oidc.exchanges += 1;
      if (oidc.rewriteIdToken) rewriteAnswer(response, oidc.rewriteIdToken, privateKey);
    }
    await serve(request, response);
  };
  return oidc;
}

/** The provider logs in `oidc.account` and grants all scopes. */
function configurationOf(oidc: Oidc, redirectUri: string, jwk: object): Configuration {
  return {
    clients: [
      {
        client_id: oidc.clientId,
        client_secret: oidc.clientSecret,
        redirect_uris: [redirectUri],
        grant_types: ['authorization_code'],
        response_types: ['code'],
      },
    ],
    jwks: { keys: [jwk] },
    cookies: { keys: ['test'] },
    features: { devInteractions: { enabled: false } },
    pkce: { required: () => true },
    claims: { openid: ['sub'], email: ['email', 'email_verified'], profile: ['name', 'picture'] },
    interactions: { url: (_context, { uid }) => `/interaction/${uid}` },
    findAccount: (_context, id) => ({ accountId: id, claims: () => ({ ...oidc.account, sub: id }) }),
    async loadExistingGrant(context) {
      const grant = new context.oidc.provider.Grant({
        clientId: context.oidc.client?.clientId ?? '',
        accountId: context.oidc.session?.accountId ?? '',
      });
      grant.addOIDCScope('openid email profile');
      await grant.save();
      return grant;
    },
    ttl: {
      AccessToken: 600,
      AuthorizationCode: 60,
      IdToken: 600,
      Grant: 600,
      Session: 600,
      Interaction: 600,
    },
  };
}

function rewriteAnswer(response: ServerResponse, rewrite: RewriteIdToken, key: KeyObject): void {
  const end = response.end.bind(response) as (body: string) => ServerResponse;
  response.end = ((body: unknown) => {
    const answer = JSON.parse(String(body)) as { id_token?: string };
    if (answer.id_token !== undefined) {
      const [header = '', claims = ''] = answer.id_token.split('.');
      answer.id_token = rewrite({
        header: decode(header),
        claims: decode(claims),
        sign: (newHeader, newClaims) => sign(newHeader, newClaims, key),
      });
    }
    const changedAnswer = JSON.stringify(answer);
    response.setHeader('content-length', Buffer.byteLength(changedAnswer));
    return end(changedAnswer);
  }) as typeof response.end;
}

function decode(part: string): Record<string, unknown> {
  return JSON.parse(Buffer.from(part, 'base64url').toString('utf8')) as Record<string, unknown>;
}

function sign(header: object, claims: object, key: KeyObject): string {
  const signedText = [header, claims]
    .map((part) => Buffer.from(JSON.stringify(part)).toString('base64url'))
    .join('.');
  return `${signedText}.${createSign('RSA-SHA256').update(signedText).sign(key).toString('base64url')}`;
}

// Each login has a new cookie jar, like a new browser profile.
async function browse(start: string, issuer: string): Promise<URL> {
  const cookies = new Map<string, string>();
  let url = new URL(start);
  for (let hops = 0; hops < 10; hops += 1) {
    const answer = await fetch(url, {
      redirect: 'manual',
      headers: { cookie: [...cookies].map(([name, value]) => `${name}=${value}`).join('; ') },
    });
    for (const cookie of answer.headers.getSetCookie()) {
      const [pair = ''] = cookie.split(';');
      const separator = pair.indexOf('=');
      cookies.set(pair.slice(0, separator), pair.slice(separator + 1));
    }
    const location = answer.headers.get('location');
    if (location === null)
      throw new Error(`The provider answered ${answer.status}: ${(await answer.text()).slice(0, 300)}`);
    url = new URL(location, url);
    if (url.origin !== issuer) return url;
  }
  throw new Error('The provider redirected the browser ten times.');
}
