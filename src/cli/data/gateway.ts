// Opens a gateway without listeners, for commands that need its services and not only its database.
import { createGateway } from '../../gateway/compose.ts';
import type { Gateway } from '../../gateway/compose.ts';
import type { GatewayConfig } from '../../gateway/config.ts';
import { systemClock } from '../../kernel/clock.ts';
import type { LogLevel } from '../../kernel/log.ts';
import type { CommandContext } from '../command-line/command.ts';
import { stderrLog } from '../command-line/stderr-log.ts';

/** Creates the gateway and closes it after the work. `secrets` are redacted in its log. */
export async function withGateway<T>(
  config: GatewayConfig,
  {
    env,
    secrets,
    logLevel,
  }: { env: CommandContext['env']; secrets?: readonly string[]; logLevel?: LogLevel },
  work: (gateway: Gateway) => Promise<T>,
): Promise<T> {
  const { log, redactor } = stderrLog({
    ...(logLevel === undefined ? {} : { level: logLevel }),
    ...(secrets === undefined ? {} : { secrets }),
  });
  const gateway = await createGateway(config, { env, log, redactor, clock: systemClock });
  try {
    return await work(gateway);
  } finally {
    await gateway.close();
  }
}
