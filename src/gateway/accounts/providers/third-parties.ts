// The third parties: GitHub, Google, and any OpenID provider. Their addresses and credentials are declared keys,
// looked up for every login, so that an operator's change needs no restart.
import { Problem } from '../../../kernel/problem.ts';
import type { Requirement } from '../../service.ts';
import type { EnvReader } from '../ports.ts';
import { isUsableIssuer, type Grant, type OpenId, type ThirdParty } from './openid.ts';
import type { Person, RedirectProvider } from './provider.ts';

const keys = (name: string, title: string): Requirement[] => [
  {
    key: `${name}_CLIENT_ID`,
    description: `The client id of the login with ${title}.`,
    required: false,
    secret: false,
  },
  {
    key: `${name}_CLIENT_SECRET`,
    description: `The client secret of the login with ${title}.`,
    required: false,
  },
];

/** The keys that turn the third parties on. */
export const thirdPartyKeys: readonly Requirement[] = [
  {
    key: 'OIDC_ISSUER',
    description: 'The issuer of an OpenID provider, such as https://login.example.',
    required: false,
    secret: false,
  },
  ...keys('OIDC', 'an OpenID provider'),
  ...keys('GITHUB', 'GitHub'),
  {
    key: 'GITHUB_BASE_URL',
    description: 'Where an enterprise has its own GitHub; https://github.com without it.',
    required: false,
    secret: false,
  },
  {
    key: 'GITHUB_API_BASE_URL',
    description: 'Where its API is; https://api.github.com without it.',
    required: false,
    secret: false,
  },
  ...keys('GOOGLE', 'Google'),
];

export function thirdParties({
  env,
  openId,
  hasCallback,
}: {
  env: EnvReader;
  openId: OpenId;
  hasCallback: () => boolean;
}): RedirectProvider[] {
  function provider(about: {
    id: string;
    label: string;
    party: () => ThirdParty | null;
    person: (grant: Grant) => Promise<Person>;
  }): RedirectProvider {
    const required = (): ThirdParty => {
      const party = about.party();
      if (party === null)
        throw new Problem('bad_request', 'login_failed', 'This way to log in is not there any more.');
      return party;
    };
    return {
      id: about.id,
      label: about.label,
      kind: 'redirect',
      inputs: [],
      available: () => hasCallback() && about.party() !== null,
      start: (request) => openId.begin(required(), request),
      finish: (answer) => openId.end(required(), answer, about.person),
    };
  }

  function credentials(name: string): { clientId: string; clientSecret: string } | null {
    const clientId = env.get(`${name}_CLIENT_ID`);
    const clientSecret = env.get(`${name}_CLIENT_SECRET`);
    return clientId && clientSecret ? { clientId, clientSecret } : null;
  }

  function openIdParty(name: string, issuer: string | undefined): ThirdParty | null {
    const own = credentials(name);
    return own && issuer && isUsableIssuer(issuer)
      ? { ...own, scope: 'openid email profile', server: { issuer } }
      : null;
  }

  // The addresses can be set, for an enterprise's own GitHub.
  const githubUrl = () => withoutSlash(env.get('GITHUB_BASE_URL') ?? 'https://github.com');
  const githubApiUrl = () => withoutSlash(env.get('GITHUB_API_BASE_URL') ?? 'https://api.github.com');
  function githubParty(): ThirdParty | null {
    const own = credentials('GITHUB');
    const base = githubUrl();
    if (!own || !isUsableIssuer(base) || !isUsableIssuer(githubApiUrl())) return null;
    const server = {
      issuer: base,
      authorizationUrl: `${base}/login/oauth/authorize`,
      tokenUrl: `${base}/login/oauth/access_token`,
      isPlain: true as const,
    };
    return { ...own, scope: 'read:user user:email', server };
  }

  return [
    provider({
      id: 'github',
      label: 'GitHub',
      party: githubParty,
      person: (grant) => githubPerson(grant, { issuer: githubUrl(), api: githubApiUrl() }),
    }),
    provider({
      id: 'google',
      label: 'Google',
      party: () => openIdParty('GOOGLE', env.get('GOOGLE_BASE_URL') ?? 'https://accounts.google.com'),
      person: openIdPerson,
    }),
    provider({
      id: 'oidc',
      label: 'Single sign-on',
      party: () => openIdParty('OIDC', env.get('OIDC_ISSUER')),
      person: openIdPerson,
    }),
  ];
}

async function openIdPerson({ claims, userInfo }: Grant): Promise<Person> {
  if (claims === undefined)
    throw new Problem('bad_request', 'login_failed', 'The provider did not say who this is.');
  if (!subjectShape.test(claims.sub))
    throw new Problem('bad_request', 'login_failed', 'The provider did not say who this is.');
  const known = { ...(claims['email'] === undefined ? await userInfo() : {}), ...claims };
  // An address that the provider has not verified may be anybody's.
  const email = known['email_verified'] === true ? text(known['email'], 254) : null;
  return {
    issuer: claims.iss,
    subject: claims.sub,
    email,
    displayName: text(known['name'], 200),
    avatarUrl: webAddress(known['picture']),
  };
}

// OpenID Connect Core 2 bounds it to 255 characters. An empty one would make one user of all people of a provider.
const subjectShape = /^(?=.*\S)\P{Cc}{1,255}$/u;

async function githubPerson(grant: Grant, { issuer, api }: { issuer: string; api: string }): Promise<Person> {
  const [user, emails] = await Promise.all([grant.read(`${api}/user`), grant.read(`${api}/user/emails`)]);
  const { id, login, name, avatar_url: avatar } = record(user);
  // The number stays; a login name can be given up and taken by another person.
  if (typeof id !== 'number' || !Number.isSafeInteger(id) || id < 1)
    throw new Problem('bad_request', 'login_failed', 'The provider did not say who this is.');
  const own = (Array.isArray(emails) ? emails : [])
    .map(record)
    .find(({ primary, verified }) => primary === true && verified === true);
  return {
    issuer,
    subject: String(id),
    email: text(own?.['email'], 254),
    displayName: text(name, 200) ?? text(login, 200),
    avatarUrl: webAddress(avatar),
  };
}

function record(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
}

function text(value: unknown, maximumLength: number): string | null {
  if (typeof value !== 'string') return null;
  // Nothing that a terminal or a header would take for a command.
  const shown = value
    .replace(/\p{Cc}/gu, ' ')
    .trim()
    .slice(0, maximumLength)
    .toWellFormed();
  return shown === '' ? null : shown;
}

function webAddress(value: unknown): string | null {
  const given = text(value, 2048);
  return given !== null && URL.canParse(given) && /^https?:$/.test(new URL(given).protocol) ? given : null;
}

function withoutSlash(url: string): string {
  return url.replace(/\/+$/, '');
}
