// A gateway in a process of its own, for the tests that kill it. It reads its settings from the
// environment as the command does, and prints its address and a token of the local user.
import { limitStreamGarbage } from '../../src/cli/servers/heap.ts';
import { createGateway } from '../../src/gateway/compose.ts';
import { readGatewayConfig } from '../../src/gateway/config.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { createLog } from '../../src/kernel/log.ts';
import { createRedactor } from '../../src/kernel/secrets/secret.ts';

const redactor = createRedactor();
const config = readGatewayConfig({}, process.env);
const log = createLog({ level: config.logLevel, redactor, write: (line) => void process.stderr.write(line) });
const gateway = await createGateway(config, { env: process.env, log, redactor, clock: systemClock });
// The local edition creates this Bureau itself; on PostgreSQL the tests use the same user in the
// same Bureau.
await gateway.database.sql`
  insert into gateway.bureaus_records (bureau_id, name, server_url)
  values ('local', 'Local', 'http://127.0.0.1:43127') on conflict do nothing`;
const { url } = await gateway.listen();
limitStreamGarbage();
const { userToken } = await gateway.issueLocalToken();
process.stdout.write(`${JSON.stringify({ msg: 'listening', url, userToken })}\n`);
process.once('SIGTERM', () => void gateway.close());
