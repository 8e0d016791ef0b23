// Where a command finds the data it is about: a running local edition holds its embedded database, so it is
// asked through its control socket; otherwise the command opens the database itself.
import { join } from 'node:path';
import { createGateway } from '../../gateway/compose.ts';
import type { Gateway } from '../../gateway/compose.ts';
import type { GatewayConfig } from '../../gateway/config.ts';
import { systemClock } from '../../kernel/clock.ts';
import { callControl } from '../../kernel/control.ts';
import { createLog, type LogLevel } from '../../kernel/log.ts';
import { Problem } from '../../kernel/problem.ts';
import { createRedactor } from '../../kernel/secrets/secret.ts';
import type { CommandInput } from '../command-line/command.ts';

/** Asks the running server, or does the same `otherwise`. */
export async function askRunning<T>(
  config: GatewayConfig,
  control: { name: string; input: unknown },
  otherwise: () => Promise<T>,
): Promise<T> {
  if (config.databaseUrl === undefined) {
    try {
      return (await callControl(join(config.databasePath, 'control.sock'), control.name, control.input)) as T;
    } catch (error) {
      if (!(error instanceof Problem && error.code === 'not_ready')) throw error;
    }
  }
  return otherwise();
}

/** A gateway for the length of one piece of work; it serves nobody. `secrets` are kept out of its log, which goes to standard error. */
export async function withGateway<T>(
  config: GatewayConfig,
  {
    env,
    secrets = [],
    logLevel = 'warn',
  }: { env: CommandInput['env']; secrets?: readonly string[]; logLevel?: LogLevel },
  work: (gateway: Gateway) => Promise<T>,
): Promise<T> {
  const redactor = createRedactor();
  for (const secret of secrets) redactor.hold(secret);
  const log = createLog({ level: logLevel, redactor, write: (line) => void process.stderr.write(line) });
  const gateway = await createGateway(config, { env, log, redactor, clock: systemClock });
  try {
    return await work(gateway);
  } finally {
    await gateway.close();
  }
}
