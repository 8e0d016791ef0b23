// `townhall admin`: the administrator's credentials, and the machine credentials of products' backends.
import { machineTokenActions } from '../admin/machine-tokens.ts';
import { askForNewPassword, readLineFromTerminal, readPasswordFromPipe } from '../admin/password.ts';
import { action, type Action, type Command, type CommandContext } from '../command-line/command.ts';
import { askServer, gatewayDatabase, requireDatabase } from '../data/database-location.ts';
import { dataNotes, dataOptions, readConfigHere } from '../data/gateway-config.ts';
import { withGateway } from '../data/gateway.ts';

type CredentialsChange = 'setup' | 'reset';

export const command: Command = {
  description: ['Asks for missing values. A password has at least 12 characters and is never an argument.'],
  actions: [
    changeCredentials('setup', 'Create the first administrator.'),
    changeCredentials('reset', "Replace the administrator's credentials and end every session."),
    ...machineTokenActions,
  ],
  notes: dataNotes,
};

function changeCredentials(change: CredentialsChange, summary: string): Action {
  return action({
    path: change,
    summary,
    options: {
      'admin-id': { kind: 'value', placeholder: 'ID', summary: 'The administrator ID.' },
      'password-stdin': { kind: 'switch', summary: 'Read the password from standard input.' },
      ...dataOptions,
    },
    async run({ options, ...context }) {
      // ADMIN_ID and ADMIN_PASSWORD are for the first start of a server. The gateway that this command
      // opens would apply them as well, so it must not see them.
      const { ADMIN_ID: _id, ADMIN_PASSWORD: _password, ...env } = context.env;
      const config = await readConfigHere({ 'database-path': options['database-path'] }, { ...context, env });
      const adminId = options['admin-id'] ?? (await readLineFromTerminal('Administrator ID: '));
      const password = options['password-stdin'] ? await readPasswordFromPipe() : await askForNewPassword();
      const location = gatewayDatabase(config);
      const { isShort } = await askServer(
        location,
        { name: `admin.${change}`, input: { adminId, password } },
        () => {
          if (change === 'reset') requireDatabase(location);
          return withGateway(config, { env: context.env, secrets: [password] }, (gateway) =>
            change === 'setup'
              ? gateway.setupAdministrator(adminId, password)
              : gateway.resetAdministrator(adminId, password),
          );
        },
      );
      report(context, { change, adminId, asJson: options.json });
      if (isShort)
        context.printError('The password is accepted, but fifteen characters or more are recommended.');
      return 0;
    },
  });
}

function report(
  { print }: CommandContext,
  { change, adminId, asJson }: { change: CredentialsChange; adminId: string; asJson: boolean },
): void {
  if (asJson) print(JSON.stringify({ action: change, admin_id: adminId }));
  else if (change === 'setup') print(`The administrator ${adminId} is set up.`);
  else print(`The administrator is now ${adminId}; every administrator session has ended.`);
}
