// One start of a gateway on existing data, for tests of master keys.
import { createGateway } from '../../../src/gateway/compose.ts';
import { readGatewayConfig } from '../../../src/gateway/config.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { createLog } from '../../../src/kernel/log.ts';
import { createRedactor } from '../../../src/kernel/secrets/secret.ts';
import { databaseEnv, type DatabasePlace } from '../../support/databases.ts';

/** Resolves with the text of the log. Rejects when the gateway refuses to start. */
export async function startAndStop(place: DatabasePlace, env: Record<string, string>): Promise<string> {
  const databaseSettings = databaseEnv(place.options);
  const environment = { HOST: '127.0.0.1', PORT: '0', LOG_LEVEL: 'debug', ...databaseSettings, ...env };
  let logText = '';
  const redactor = createRedactor();
  const log = createLog({ level: 'debug', redactor, write: (line) => void (logText += line) });
  const gateway = await createGateway(readGatewayConfig({}, environment), {
    env: environment,
    log,
    redactor,
    clock: systemClock,
    databaseLimits: place.options.limits ?? {},
  });
  await gateway.close();
  return logText;
}
