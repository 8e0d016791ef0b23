// Logins with third parties: GitHub, Google and any OpenID provider. Their addresses and
// credentials are read from the environment for every login, so that a change needs no restart.
import { asRecord } from '../../../kernel/json-value.ts';
import { Problem } from '../../../kernel/problem.ts';
import type { Requirement } from '../../service.ts';
import type { EnvReader } from '../core/ports.ts';
import { claimedAddress } from './email-address.ts';
import { isUsableIssuer, type Grant, type OpenId, type ThirdParty } from './openid.ts';
import type { Person, RedirectProvider } from './provider.ts';

const clientKeys = (name: string, title: string): Requirement[] => [
  {
    key: `${name}_CLIENT_ID`,
    description: `The client ID for logging in with ${title}.`,
    required: false,
    secret: false,
  },
  {
    key: `${name}_CLIENT_SECRET`,
    description: `The client secret for logging in with ${title}.`,
    required: false,
  },
];

/** The variables that enable and configure the third parties. */
export const thirdPartyKeys: readonly Requirement[] = [
  {
    key: 'OIDC_ISSUER',
    description: 'The issuer of an OpenID provider, such as https://login.example.',
    required: false,
    secret: false,
  },
  ...clientKeys('OIDC', 'an OpenID provider'),
  ...clientKeys('GITHUB', 'GitHub'),
  {
    key: 'GITHUB_BASE_URL',
    description: 'The address of a GitHub Enterprise Server; https://github.com by default.',
    required: false,
    secret: false,
  },
  {
    key: 'GITHUB_API_BASE_URL',
    description: "The address of the GitHub Enterprise Server's API; https://api.github.com by default.",
    required: false,
    secret: false,
  },
  ...clientKeys('GOOGLE', 'Google'),
];

/** A third party and how to read a person from its grant. `party` is null while it is not configured. */
interface ThirdPartyLogin {
  id: string;
  label: string;
  party(env: EnvReader): ThirdParty | null;
  person(grant: Grant, env: EnvReader): Promise<Person>;
}

const logins: readonly ThirdPartyLogin[] = [
  { id: 'github', label: 'GitHub', party: githubParty, person: fetchGithubPerson },
  {
    id: 'google',
    label: 'Google',
    party: (env) => openIdParty(env, 'GOOGLE', 'https://accounts.google.com'),
    person: openIdPerson,
  },
  {
    id: 'oidc',
    label: 'Single sign-on',
    party: (env) => openIdParty(env, 'OIDC', env.get('OIDC_ISSUER')),
    person: openIdPerson,
  },
];

export function thirdParties({
  env,
  openId,
  hasCallback,
}: {
  env: EnvReader;
  openId: OpenId;
  /** Whether the server knows the address that browsers return to. */
  hasCallback: () => boolean;
}): RedirectProvider[] {
  return logins.map(({ id, label, party, person }) => {
    function requireParty(): ThirdParty {
      const configuredParty = party(env);
      if (configuredParty === null)
        throw new Problem('bad_request', 'login_failed', `Logging in with ${label} is no longer available.`);
      return configuredParty;
    }
    return {
      id,
      label,
      kind: 'redirect',
      inputs: [],
      available: () => hasCallback() && party(env) !== null,
      start: (request) => openId.begin(requireParty(), request),
      finish: (answer) => openId.end(requireParty(), answer, (grant) => person(grant, env)),
    };
  });
}

function credentials(env: EnvReader, name: string): { clientId: string; clientSecret: string } | null {
  const clientId = env.get(`${name}_CLIENT_ID`);
  const clientSecret = env.get(`${name}_CLIENT_SECRET`);
  return clientId && clientSecret ? { clientId, clientSecret } : null;
}

function openIdParty(env: EnvReader, name: string, issuer: string | undefined): ThirdParty | null {
  const registration = credentials(env, name);
  return registration && issuer && isUsableIssuer(issuer)
    ? { ...registration, scope: 'openid email profile', server: { issuer } }
    : null;
}

function githubUrls(env: EnvReader): { base: string; api: string } {
  return {
    base: withoutSlash(env.get('GITHUB_BASE_URL') ?? 'https://github.com'),
    api: withoutSlash(env.get('GITHUB_API_BASE_URL') ?? 'https://api.github.com'),
  };
}

function githubParty(env: EnvReader): ThirdParty | null {
  const registration = credentials(env, 'GITHUB');
  const { base, api } = githubUrls(env);
  if (!registration || !isUsableIssuer(base) || !isUsableIssuer(api)) return null;
  const server = {
    issuer: base,
    authorizationUrl: `${base}/login/oauth/authorize`,
    tokenUrl: `${base}/login/oauth/access_token`,
    isPlain: true as const,
  };
  return { ...registration, scope: 'read:user user:email', server };
}

async function openIdPerson({ claims, userInfo }: Grant): Promise<Person> {
  if (claims === undefined || !subjectPattern.test(claims.sub)) throw unidentifiedProblem();
  const profile = { ...(claims['email'] === undefined ? await userInfo() : {}), ...claims };
  // An unverified address may belong to someone else.
  const email = profile['email_verified'] === true ? claimedAddress(profile['email']) : null;
  return {
    issuer: claims.iss,
    subject: claims.sub,
    email,
    displayName: readText(profile['name'], 200),
    avatarUrl: webAddress(profile['picture']),
  };
}

// OpenID Connect Core 1.0, section 2, limits `sub` to 255 characters. An empty `sub` would give all people
// of a provider the same account.
const subjectPattern = /^(?=.*\S)\P{Cc}{1,255}$/u;

async function fetchGithubPerson(grant: Grant, env: EnvReader): Promise<Person> {
  const { base, api } = githubUrls(env);
  const [user, emails] = await Promise.all([grant.read(`${api}/user`), grant.read(`${api}/user/emails`)]);
  const { id, login, name, avatar_url: avatar } = asRecord(user);
  // Use the numeric id: a login name can be given up and taken by another person.
  if (typeof id !== 'number' || !Number.isSafeInteger(id) || id < 1) throw unidentifiedProblem();
  const primaryEmail = (Array.isArray(emails) ? emails : [])
    .map(asRecord)
    .find(({ primary, verified }) => primary === true && verified === true);
  return {
    issuer: base,
    subject: String(id),
    email: claimedAddress(primaryEmail?.['email']),
    displayName: readText(name, 200) ?? readText(login, 200),
    avatarUrl: webAddress(avatar),
  };
}

function unidentifiedProblem(): Problem {
  return new Problem('bad_request', 'login_failed', 'The login provider did not identify you.');
}

function readText(value: unknown, maximumLength: number): string | null {
  if (typeof value !== 'string') return null;
  // Control characters could act as commands in a terminal or a header.
  const cleanText = value
    .replace(/\p{Cc}/gu, ' ')
    .trim()
    .slice(0, maximumLength)
    .toWellFormed();
  return cleanText === '' ? null : cleanText;
}

function webAddress(value: unknown): string | null {
  const url = readText(value, 2048);
  return url !== null && URL.canParse(url) && /^https?:$/.test(new URL(url).protocol) ? url : null;
}

function withoutSlash(url: string): string {
  return url.replace(/\/+$/, '');
}
