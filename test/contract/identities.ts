// Prints the table of operations × identities as a server answers it, and exits 1 when an answer
// differs from the contract. It creates a local edition and removes it again.
//
//   node test/contract/identities.ts
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createGateway, type Gateway } from '../../src/gateway/compose.ts';
import { readGatewayConfig } from '../../src/gateway/config.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { createLog } from '../../src/kernel/log.ts';
import { createRedactor } from '../../src/kernel/secrets/secret.ts';
import { callAll, insertBureaus, renderTable } from './identity-table.ts';

const folder = await mkdtemp(join(tmpdir(), 'townhall-identities-'));
const env = {
  HOST: '127.0.0.1',
  PORT: '0',
  DATABASE_PATH: join(folder, 'townhall.db'),
  ADMIN_ID: 'admin',
  ADMIN_PASSWORD: 'a password for this table only',
  RATE_LIMIT_USER: 'off',
  RATE_LIMIT_GUEST: 'off',
  RATE_LIMIT_ADMIN: 'off',
  RATE_LIMIT_LOGIN: 'off',
};
const redactor = createRedactor();
const log = createLog({ level: 'error', redactor, write: (line) => void process.stderr.write(line) });
let gateway: Gateway | undefined;
try {
  gateway = await createGateway(readGatewayConfig({}, env), {
    env,
    log,
    redactor,
    clock: systemClock,
    validateResponses: true,
  });
  await insertBureaus(gateway.database.sql);
  const { url } = await gateway.listen();
  const findings = await callAll(url, gateway.database.sql);
  console.log(renderTable(findings));
  const mismatches = findings.filter(({ mismatch }) => mismatch !== null);
  for (const { operation, caller, status, code, mismatch } of mismatches)
    console.error(`${operation.operationId} for ${caller}: ${status} ${code ?? ''}; ${mismatch}`);
  console.log(`${findings.length} answers, ${mismatches.length} of them differ from the contract`);
  process.exitCode = mismatches.length === 0 ? 0 : 1;
} finally {
  await gateway?.close();
  await rm(folder, { recursive: true, force: true });
}
