// `townhall admin setup` and `reset`: the administrator's credentials. `townhall admin token` has a file of its own.
import type { GatewayConfig } from '../../gateway/config.ts';
import { SettingError } from '../../kernel/settings.ts';
import { runAdminToken } from '../admin/machine-tokens.ts';
import { parseFlags } from '../command-line/command.ts';
import type { Command, CommandInput } from '../command-line/command.ts';
import { gatewayConfigHere, hereHelp } from '../data/gateway-config.ts';
import { gatewayPlace, requireDatabase } from '../data/database-location.ts';
import { lineFromTerminal, passwordFromPipe, passwordFromTerminal } from '../admin/password.ts';
import { askRunning, withGateway } from '../data/running-gateway.ts';

type Action = 'setup' | 'reset';

export const adminCommand: Command = {
  help: () =>
    [
      'Usage: townhall admin setup [OPTIONS]    makes the first administrator',
      '       townhall admin reset [OPTIONS]    replaces the credentials and ends every session',
      '',
      '       townhall admin token create --scope SCOPES --bureau ID [--ttl 90d]',
      "                                         makes a machine credential for a product's backend",
      '       townhall admin token list',
      '       townhall admin token revoke ID [--keep-tokens]',
      '',
      'Asks for what is not given. A password has at least 12 characters; it is never an argument.',
      '',
      '  --admin-id ID          the administrator ID',
      '  --password-stdin       read the password from standard input',
      '  --scope SCOPES         what a machine credential is good for: tokens.issue, bureaus.current',
      '  --bureau ID            the one Bureau that it may act for',
      '  --ttl TIME             how long it lives, such as 12h or 90d; 90d without it, 365d at most',
      '  --keep-tokens          revoke the credential and leave the user tokens that it issued',
      '  --database-path PATH   folder of the embedded database (./data/townhall.db)',
      '  --json                 print the result as JSON',
      '',
      ...hereHelp,
    ].join('\n'),
  async run(input) {
    if (input.arguments.find((word) => !word.startsWith('-')) === 'token') return runAdminToken(input);
    const { flags, words } = parseFlags(input.arguments, {
      flags: ['admin-id', 'database-path'],
      switches: ['password-stdin', 'json'],
    });
    const [action, ...surplus] = words;
    if ((action !== 'setup' && action !== 'reset') || surplus.length > 0) {
      throw new SettingError('say "townhall admin setup", "reset" or "token"; see --help.');
    }
    // ADMIN_ID and ADMIN_PASSWORD belong to a server's first start; here they would act unasked.
    const { ADMIN_ID: _id, ADMIN_PASSWORD: _password, ...env } = input.env;
    const config = await gatewayConfigHere({ 'database-path': flags['database-path'] }, { ...input, env });
    const adminId = flags['admin-id'] ?? (await lineFromTerminal('Administrator ID: '));
    const password =
      flags['password-stdin'] === 'true' ? await passwordFromPipe() : await passwordFromTerminal();
    const { isShort } = await act(action, { adminId, password, config, env: input.env });
    report(input, { action, adminId, isShort, asJson: flags['json'] === 'true' });
    return 0;
  },
};

interface Request {
  adminId: string;
  password: string;
  config: GatewayConfig;
  env: CommandInput['env'];
}

async function act(
  action: Action,
  { adminId, password, config, env }: Request,
): Promise<{ isShort: boolean }> {
  return askRunning(config, { name: `admin.${action}`, input: { adminId, password } }, () => {
    if (action === 'reset') requireDatabase(gatewayPlace(config));
    return withGateway(config, { env, secrets: [password] }, (gateway) =>
      action === 'setup'
        ? gateway.setupAdministrator(adminId, password)
        : gateway.resetAdministrator(adminId, password),
    );
  });
}

function report(
  input: CommandInput,
  done: { action: Action; adminId: string; isShort: boolean; asJson: boolean },
): void {
  const { action, adminId, isShort, asJson } = done;
  if (asJson) {
    input.print(JSON.stringify({ action, admin_id: adminId }));
  } else {
    input.print(
      action === 'setup'
        ? `The administrator ${adminId} is set up.`
        : `The credentials are replaced by those of ${adminId}; every administrator session has ended.`,
    );
  }
  if (isShort) input.complain('The password is accepted, but fifteen characters or more are advised.');
}
