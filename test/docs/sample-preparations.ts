// Preparations for the samples of operations, and the example values that they replace. An unlisted
// operation needs none. Every preparation creates new data, so samples do not depend on each other.
import { randomUUID } from 'node:crypto';
import type { AcceptedJob } from '@townhall/gateway';
import { expect } from 'vitest';
import { administratorPassword, type SampleServers } from './sample-servers.ts';

/**
 * `replace` has texts of the sample with their replacements in this run, `tokens` replaces environment
 * variables of the sample.
 */
export interface Preparation {
  replace?: Readonly<Record<string, string>>;
  tokens?: Readonly<Record<string, string>>;
}

type Prepare = (servers: SampleServers, agent: SampleServers['agents']['current']) => Promise<Preparation>;

// The values of the contract's examples.
const example = {
  user: 'usr_01jd6zv0c5e9fsr8m2w4x1k7qa',
  token: 'tok_01jd6zv0c5e9fsr8m2w4x1k7qb',
  bureau: 'bur_01jd6zv0c5e9fsr8m2w4x1k7qa',
  job: 'job_01jd6zv0c5e9fsr8m2w4x1k7qa',
  response: 'resp_01jd6zv0c5e9fsr8m2w4x1k7qe',
  request: 'req_01jd6zv0c5e9fsr8m2w4x1k7qd',
  payment: 'pay_01jd6zv0c5e9fsr8m2w4x1k7qa',
  login: 'lgn_4T1mB0nYz7c2q8Xw5kVd9sRj3hPfA6uE1oLxGiQyN0Z',
  verification: 'lgv_4T1mB0nYz7c2q8Xw5kVd9sRj3hPfA6uE1oLxGiQyN0Z',
  deviceCode: 'lgd_4T1mB0nYz7c2q8Xw5kVd9sRj3hPfA6uE1oLxGiQyN0Z',
  appCode: 'lga_4T1mB0nYz7c2q8Xw5kVd9sRj3hPfA6uE1oLxGiQyN0Z',
  /** Belongs to the code verifier in the contract's example (RFC 7636, appendix B). */
  codeChallenge: 'E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM',
  userCode: 'WDJB-MJHT',
  session: 'ses_01jd6zv0c5e9fsr8m2w4x1k7qa',
  run: 'run_01jd6zv0c5e9fsr8m2w4x1k7qb',
  queueItem: 'qit_01jd6zv0c5e9fsr8m2w4x1k7qe',
  approval: 'apr_01jd6zv0c5e9fsr8m2w4x1k7qf',
  attachment: 'att_01jd6zv0c5e9fsr8m2w4x1k7qg',
  permission: 'prm_01jd6zv0c5e9fsr8m2w4x1k7qh',
  media: 'med_01jd6zv0c5e9fsr8m2w4x1k7qb',
  mediaExpires: '1795168800',
  signature: '0mS2nJrYqZ3bB5i9cW1vKx7uLd4Hf8TgQeAaPoRtUyE',
  mailedCode: '1234 5678',
  email: 'ada@example.com',
  password: 'correct horse battery staple',
} as const;

/** The password of every user that registers here. */
export const samplePassword = example.password;

const appAddress = 'https://shop.example/welcome';

async function createUser({ gateway }: SampleServers) {
  return gateway.admin.accounts.issueToken({ bureau_id: 'local', external_id: `person-${randomUUID()}` });
}

const withUser: Prepare = async (servers) => ({
  replace: { [example.user]: (await createUser(servers)).user_id },
});

const newEmail = (): string => `ada-${randomUUID()}@example.com`;

async function register({ gateway, mailbox }: SampleServers) {
  const email = newEmail();
  const { verification_id } = await gateway.guest.accounts.register({
    bureau_id: 'shop',
    email,
    password: example.password,
  });
  const { code } = await mailbox.letterTo(email);
  return { email, verification_id, code };
}

/** Registers a user of the Bureau `shop`; returns the e-mail address. */
export async function newAccount(servers: SampleServers): Promise<string> {
  const { email, verification_id, code } = await register(servers);
  await servers.gateway.guest.accounts.verifyEmail({ verification_id, code });
  return email;
}

async function startPasswordLogin({ gateway }: SampleServers): Promise<string> {
  const { login_id } = await gateway.guest.accounts.startLogin({ provider: 'password', bureau_id: 'shop' });
  return login_id;
}

async function startDeviceLogin({ gateway }: SampleServers) {
  return gateway.guest.accounts.startDeviceLogin({ bureau_id: 'local', name: 'a sample' });
}

const withDeviceLogin: Prepare = async (servers) => ({
  replace: { [example.userCode]: (await startDeviceLogin(servers)).user_code },
});

const withConfirmedDevice: Prepare = async (servers) => {
  const { device_code, user_code } = await startDeviceLogin(servers);
  await servers.gateway.user.accounts.decideDeviceLogin({ user_code, decision: 'confirm' });
  return { replace: { [example.deviceCode]: device_code } };
};

/** A finished login of a Bureau that lists the sample's address. */
async function createFinishedLogin({ gateway }: SampleServers): Promise<string> {
  await gateway.admin.bureaus.updateBureau({ bureau_id: 'local', redirect_uris: [appAddress] });
  const { login_id } = await gateway.guest.accounts.startLogin({ provider: 'local', bureau_id: 'local' });
  return login_id;
}

async function createAppCode(servers: SampleServers): Promise<string> {
  const { url } = await servers.gateway.guest.accounts.issueLoginCode({
    login_id: await createFinishedLogin(servers),
    redirect_uri: appAddress,
    code_challenge: example.codeChallenge,
    state: 'a-sample',
  });
  return new URL(url).searchParams.get('code') ?? '';
}

async function createBureau({ gateway }: SampleServers): Promise<string> {
  const { bureau_id } = await gateway.admin.bureaus.createBureau({ server_url: 'https://example.test' });
  return bureau_id;
}

const withBureau: Prepare = async (servers) => ({
  replace: { [example.bureau]: await createBureau(servers) },
});

const withPausedBureau: Prepare = async (servers) => {
  const bureauId = await createBureau(servers);
  await servers.gateway.admin.bureaus.pauseBureau({ bureau_id: bureauId });
  return { replace: { [example.bureau]: bureauId } };
};

const withCity: Prepare = async ({ gateway }) => {
  await gateway.admin.cities.upsertCity({
    city_id: 'cty_01jd6zv0c5e9fsr8m2w4x1k7qa',
    name: 'example',
    base_url: 'https://city.example.test',
    target: 'local',
    version: '1.4.2',
  });
  return {};
};

const withPermission: Prepare = async (_servers, { client }) => {
  const { permissionId } = await client.permissions.create({ tool: `tool-${randomUUID()}`, effect: 'ask' });
  return { replace: { [example.permission]: permissionId } };
};

async function startImage({ gateway }: SampleServers): Promise<string> {
  const { job_id } = (await gateway.user.ai.createImage({
    model: 'local/shapes',
    prompt: 'a red circle',
  })) as AcceptedJob;
  return job_id;
}

const withImage: Prepare = async (servers) => ({ replace: { [example.job]: await startImage(servers) } });

const withStoredResponse: Prepare = async ({ gateway }) => {
  const { id } = await gateway.user.ai.createResponse({ model: 'local/echo', input: 'Hello', store: true });
  return { replace: { [example.response]: id } };
};

const withBackgroundResponse: Prepare = async ({ gateway }) => {
  const { id } = await gateway.user.ai.createResponse({
    model: 'local/echo',
    input: 'Hello',
    background: true,
  });
  return { replace: { [example.response]: id } };
};

const withMedia: Prepare = async (servers) => {
  const jobId = await startImage(servers);
  const getImage = () => servers.gateway.user.ai.getImage({ job_id: jobId });
  await expect.poll(async () => (await getImage()).status).toBe('succeeded');
  const job = await getImage();
  const url = new URL((job.status === 'succeeded' && job.images[0]?.url) || '');
  return {
    replace: {
      [example.media]: url.pathname.split('/').at(-1) ?? '',
      [example.mediaExpires]: url.searchParams.get('expires') ?? '',
      [example.signature]: url.searchParams.get('signature') ?? '',
    },
  };
};

const withCall: Prepare = async ({ gateway }) => {
  await gateway.user.ai.generateText({ model: 'local/echo', prompt: 'Hello' });
  const { items } = await gateway.user.usage.listRecords({ model: 'local/echo', limit: 1 });
  return { replace: { [example.request]: items[0]?.request_id ?? '' } };
};

const withVideo: Prepare = async ({ gateway }) => {
  const { id } = await gateway.user.ai.createClientVideo({ model: 'local/storyboard', prompt: 'A sun.' });
  return { replace: { [example.job]: id } };
};

const withFinishedVideo: Prepare = async (servers, agent) => {
  const preparation = await withVideo(servers, agent);
  const video_id = preparation.replace?.[example.job] ?? '';
  const getVideo = () => servers.gateway.user.ai.getClientVideo({ video_id });
  await expect.poll(async () => (await getVideo()).status, { timeout: 30_000 }).toBe('completed');
  return preparation;
};

const withSession: Prepare = async (_servers, { client }) => {
  const { id } = await client.sessions.create({ title: 'The weather', attended: true });
  return { replace: { [example.session]: id } };
};

async function sessionIdOf(preparation: Promise<Preparation>) {
  const { replace = {} } = await preparation;
  return { replace, sessionId: replace[example.session] ?? '' };
}

const withRun: Prepare = async (servers, agent) => {
  const { replace, sessionId } = await sessionIdOf(withSession(servers, agent));
  const { runId } = await agent.client.sessions.prompt(
    { sessionId, text: 'Good morning' },
    { headers: { prefer: 'wait=30' } },
  );
  return { replace: { ...replace, [example.run]: runId } };
};

const withFileChange: Prepare = async (servers, agent) => {
  const { replace, sessionId } = await sessionIdOf(withSession(servers, agent));
  const { runId } = await agent.client.sessions.prompt(
    { sessionId, text: 'Write a file' },
    { headers: { prefer: 'wait=30' } },
  );
  return { replace: { ...replace, [example.run]: runId } };
};

const withUndoneChange: Prepare = async (servers, agent) => {
  const preparation = await withFileChange(servers, agent);
  const { [example.session]: sessionId = '', [example.run]: runId = '' } = preparation.replace ?? {};
  await agent.client.sessions.undoRun({ sessionId, runId });
  return preparation;
};

const withAttachment: Prepare = async (servers, agent) => {
  const { replace, sessionId } = await sessionIdOf(withSession(servers, agent));
  const file = { type: 'document' as const, fileName: 'a.txt', contentType: 'text/plain', content: 'Hall' };
  await agent.client.sessions.prompt({ sessionId, text: 'Good morning', attachments: [file] });
  const { items } = await agent.client.sessions.listMessages({ sessionId });
  const [part] = items[0]?.parts ?? [];
  const attachmentId = part?.type === 'data-attachment' ? part.data.attachmentId : '';
  return { replace: { ...replace, [example.attachment]: attachmentId } };
};

const withQueueItem: Prepare = async (servers, agent) => {
  const { replace, sessionId } = await sessionIdOf(withSession(servers, agent));
  await agent.client.sessions.prompt({ sessionId, text: 'Take long' });
  const { queueItemId } = await agent.client.sessions.prompt({ sessionId, text: 'And then?' });
  return { replace: { ...replace, [example.queueItem]: queueItemId ?? '' } };
};

const withApproval: Prepare = async (servers, agent) => {
  const { replace, sessionId } = await sessionIdOf(withSession(servers, agent));
  await agent.client.sessions.prompt({ sessionId, text: 'Act now' });
  const findApproval = async () =>
    (await agent.client.sessions.listApprovals({ sessionId, status: 'pending' })).items[0];
  await expect.poll(findApproval).toBeDefined();
  return { replace: { ...replace, [example.approval]: (await findApproval())?.approvalId ?? '' } };
};

/** The preparations by document and operationId; `agent` stands for both variants. */
export const preparations: Readonly<Record<string, Prepare>> = {
  'gateway/accounts.continueLogin': async (servers) => ({
    replace: {
      [example.email]: await newAccount(servers),
      [example.login]: await startPasswordLogin(servers),
    },
  }),
  'gateway/accounts.getLoginResult': async ({ gateway }) => {
    const { login_id } = await gateway.guest.accounts.startLogin({ provider: 'local', bureau_id: 'local' });
    return { replace: { [example.login]: login_id } };
  },
  'gateway/accounts.issueLoginCode': async (servers) => ({
    replace: { [example.login]: await createFinishedLogin(servers) },
  }),
  'gateway/accounts.issueLoginToken': async (servers) => ({
    replace: { [example.appCode]: await createAppCode(servers) },
  }),
  'gateway/accounts.getDeviceLogin': withDeviceLogin,
  'gateway/accounts.getDeviceLoginResult': withConfirmedDevice,
  'gateway/accounts.decideDeviceLogin': withDeviceLogin,
  'gateway/accounts.register': async () => ({ replace: { [example.email]: newEmail() } }),
  'gateway/accounts.verifyEmail': async (servers) => {
    const { verification_id, code } = await register(servers);
    return { replace: { [example.verification]: verification_id, [example.mailedCode]: code } };
  },
  'gateway/accounts.resetPassword': async (servers) => {
    const email = await newAccount(servers);
    const { verification_id } = await servers.gateway.guest.accounts.requestPasswordReset({
      bureau_id: 'shop',
      email,
    });
    const { code } = await servers.mailbox.letterTo(email, 2);
    return { replace: { [example.verification]: verification_id, [example.mailedCode]: code } };
  },
  'gateway/accounts.changePassword': async (servers) => {
    const email = await newAccount(servers);
    const login_id = await startPasswordLogin(servers);
    const { guest } = servers.gateway;
    await guest.accounts.continueLogin({ login_id, input: { email, password: example.password } });
    const login = await guest.accounts.getLoginResult({ login_id });
    return { tokens: { TOWNHALL_TOKEN: login.status === 'done' ? login.user_token : '' } };
  },
  'gateway/accounts.logout': async (servers) => ({
    tokens: { TOWNHALL_TOKEN: (await createUser(servers)).user_token },
  }),
  'gateway/accounts.revokeTokens': async (servers) => ({
    replace: { [example.token]: (await createUser(servers)).token_id },
  }),
  'gateway/accounts.revokeKey': async ({ gateway }) => ({
    replace: { [example.token]: (await gateway.user.accounts.createKey({ name: 'ci' })).token_id },
  }),
  'gateway/accounts.blockUser': withUser,
  'gateway/accounts.unblockUser': async (servers) => {
    const { user_id } = await createUser(servers);
    await servers.gateway.admin.accounts.blockUser({ user_id });
    return { replace: { [example.user]: user_id } };
  },
  'gateway/accounts.removeUser': withUser,
  'gateway/admin.login': async () => ({ replace: { [example.password]: administratorPassword } }),
  'gateway/admin.logout': async ({ gateway }) => {
    const { session_token } = await gateway.guest.admin.login({
      admin_id: 'admin',
      password: administratorPassword,
    });
    return { tokens: { TOWNHALL_ADMIN_TOKEN: session_token } };
  },
  'gateway/bureaus.updateBureau': withBureau,
  'gateway/bureaus.pauseBureau': withBureau,
  'gateway/bureaus.activateBureau': withPausedBureau,
  'gateway/bureaus.archiveBureau': withPausedBureau,
  'gateway/bureaus.updateServer': withBureau,
  'gateway/cities.removeCity': withCity,
  'gateway/cities.getCurrentCity': withCity,
  'gateway/env.removeVariable': async ({ gateway }) => {
    await gateway.admin.env.upsertVariable({ key: 'ACME_API_KEY', value: 'a key for tests' });
    return {};
  },
  // The sample changes the base URL of `acme`, which other samples call.
  'gateway/env.importVariables': async ({ provider }) => ({
    replace: { 'https://acme.example/v1': provider.url },
  }),
  'gateway/usage.getSdkGeneration': withCall,
  'gateway/credits.grantCredits': withUser,
  'gateway/credits.deductCredits': withUser,
  'gateway/payments.getPayment': async ({ gateway }) => {
    const { payment_id } = await gateway.user.payments.createCheckout({
      method: 'stripe',
      credits: 10_000_000,
    });
    return { replace: { [example.payment]: payment_id } };
  },
  'gateway/ai.getImage': withImage,
  'gateway/ai.getResponse': withStoredResponse,
  'gateway/ai.cancelResponse': withBackgroundResponse,
  'gateway/ai.removeResponse': withStoredResponse,
  'gateway/ai.listResponseInputItems': withStoredResponse,
  'gateway/ai.cancelImage': withImage,
  'gateway/ai.getMedia': withMedia,
  'gateway/ai.listClientVideos': withVideo,
  'gateway/ai.getSdkVideo': withVideo,
  'gateway/ai.getClientVideo': withVideo,
  'gateway/ai.removeClientVideo': withVideo,
  'gateway/ai.getClientVideoContent': withFinishedVideo,
  'agent/sessions.executeInSession': withSession,
  'agent/sessions.get': withSession,
  'agent/sessions.update': withSession,
  'agent/sessions.remove': withSession,
  'agent/sessions.prompt': withSession,
  'agent/sessions.listMessages': withSession,
  'agent/sessions.getSystem': withSession,
  'agent/sessions.follow': withRun,
  'agent/sessions.cancel': withQueueItem,
  'agent/sessions.compact': withRun,
  'agent/sessions.regenerate': withRun,
  'agent/sessions.getAttachment': withAttachment,
  'agent/sessions.getRun': withRun,
  'agent/sessions.getChanges': withFileChange,
  'agent/sessions.undoRun': withFileChange,
  'agent/sessions.redoRun': withUndoneChange,
  'agent/sessions.listQueue': withSession,
  'agent/sessions.removeQueueItem': withQueueItem,
  'agent/sessions.listApprovals': withApproval,
  'agent/sessions.decideApproval': withApproval,
  'agent/permissions.create': withSession,
  'agent/permissions.remove': withPermission,
  'agent/sessions.fork': withRun,
};
