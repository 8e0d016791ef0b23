// The gateway that first-byte.ts and gateway-beside.ts measure, configured by the environment. Its output is
// one line of JSON with its address and a user token. The argument `alone` starts the models service without
// a database, which shows how much time accounts and ledger add.
import { readFile } from 'node:fs/promises';
import { createGatewayClient } from '@townhall/gateway';
import { createGateway } from '../../src/gateway/compose.ts';
import { readGatewayConfig } from '../../src/gateway/config.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { createLog } from '../../src/kernel/log.ts';
import { createRedactor } from '../../src/kernel/secrets/secret.ts';
import { startAi, userToken as fixedToken } from '../gateway/ai/world.ts';

async function startAlone(): Promise<{ url: string; token: string }> {
  const { url } = await startAi({
    models: await readFile(process.env['MODELS_FILE'] ?? '', 'utf8'),
    validateResponses: false,
  });
  return { url, token: fixedToken };
}

async function startWhole(): Promise<{ url: string; token: string }> {
  const redactor = createRedactor();
  const config = readGatewayConfig({}, process.env);
  const log = createLog({
    level: config.logLevel,
    redactor,
    write: (line) => void process.stderr.write(line),
  });
  const gateway = await createGateway(config, { env: process.env, log, redactor, clock: systemClock });
  const { url } = await gateway.listen();
  return {
    url,
    token:
      process.env['DATABASE_URL'] === undefined
        ? (await gateway.issueLocalToken()).userToken
        : await issueToken(url),
  };
}

// A gateway on PostgreSQL has no local user, so create one as a product's backend does.
async function issueToken(url: string): Promise<string> {
  const client = createGatewayClient({ baseUrl: url });
  const { session_token: token } = await client.admin.login({
    admin_id: process.env['ADMIN_ID'] ?? '',
    password: process.env['ADMIN_PASSWORD'] ?? '',
  });
  const admin = createGatewayClient({ baseUrl: url, token });
  const bureau = await admin.bureaus.createBureau({ server_url: 'https://shop.example' });
  return (await admin.accounts.issueToken({ bureau_id: bureau.bureau_id, external_id: 'customer' }))
    .user_token;
}

process.stdout.write(
  `${JSON.stringify(await (process.argv.includes('alone') ? startAlone() : startWhole()))}\n`,
);
