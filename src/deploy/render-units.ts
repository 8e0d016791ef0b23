// Renders the systemd units of a project: one runs its gateway, the other an agent.
import { posix } from 'node:path';
import { portOf, type Declaration } from './declaration.ts';
import { notice, stopSeconds, type RenderOptions } from './render-options.ts';

// Under sudo, `user` is root. The unit must not run as root, so it gets this user.
const serviceUser = 'townhall';

export function renderUnit(options: RenderOptions): string {
  const { declaration, directory, user, command } = options;
  const run = systemdCommand([...command, 'city', 'run', '--project', directory]);
  const setup = setupCommands(options).map((line) => `#   ${line}`);
  return `# ${notice}
# Serves the version that was deployed last, even after a reboot; "townhall deploy" replaces the running version.
# Put secrets into the environment file, readable by its owner only: TOWNHALL_MASTER_KEY=…, DATABASE_URL=…
# These commands start the unit. From then on, deploy as the user of the unit.
${setup.join('\n')}
[Unit]
Description=Townhall City ${declaration.name}
After=network-online.target
Wants=network-online.target

[Service]
Type=simple
User=${user === 'root' ? serviceUser : user}
WorkingDirectory=${systemdPath(directory)}
EnvironmentFile=-${systemdPath(posix.join(directory, '.townhall/environment'))}
ExecStart=${run}
Restart=on-failure
RestartSec=2
KillMode=mixed
TimeoutStopSec=${stopSeconds}
UMask=0077
${hardening(declaration, directory).join('\n')}

[Install]
WantedBy=multi-user.target
`;
}

/** The first deployment starts a detached supervisor, so it is stopped before the unit starts its own. */
function setupCommands({ declaration, directory, folder, user }: RenderOptions): string[] {
  const project = shellWord(directory);
  const unitPath = shellWord(posix.join(folder, `${declaration.name}.service`));
  const start = [`cp ${unitPath} /etc/systemd/system/`, `systemctl enable --now ${declaration.name}`];
  if (user !== 'root') {
    return [
      `townhall deploy --project ${project}`,
      `townhall city stop --project ${project}`,
      ...start.map((command) => `sudo ${command}`),
    ];
  }
  const asUser = `runuser --user ${serviceUser} -- townhall`;
  return [
    `useradd --system --shell /usr/sbin/nologin ${serviceUser}`,
    `chown --recursive ${serviceUser}: ${project}`,
    `${asUser} deploy --project ${project}`,
    `${asUser} city stop --project ${project}`,
    ...start,
  ];
}

/**
 * Restrictions that suit both units. MemoryDenyWriteExecute is missing, because V8 compiles code at run time
 * and would crash.
 */
const commonHardening = [
  'NoNewPrivileges=true',
  'ProtectSystem=strict',
  'ProtectHome=read-only',
  'PrivateTmp=true',
  'PrivateDevices=true',
  'ProtectClock=true',
  'ProtectKernelModules=true',
  'ProtectControlGroups=true',
  'RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK',
  'RestrictRealtime=true',
  'RestrictSUIDSGID=true',
  'LockPersonality=true',
  'RemoveIPC=true',
  'SystemCallArchitectures=native',
  'SystemCallErrorNumber=EPERM',
];

function hardening(declaration: Declaration, directory: string): string[] {
  const capability = portOf(declaration) < 1024 ? 'CAP_NET_BIND_SERVICE' : '';
  return [
    `CapabilityBoundingSet=${capability}`,
    `AmbientCapabilities=${capability}`,
    `ReadWritePaths=${systemdWord(posix.join(directory, '.townhall'))}`,
    ...commonHardening,
    'ProtectHostname=true',
    'ProtectProc=invisible',
    'ProtectKernelTunables=true',
    'ProtectKernelLogs=true',
    'RestrictNamespaces=true',
    'SystemCallFilter=@system-service',
    'SystemCallFilter=~@privileged @resources',
  ];
}

/**
 * The agent's unit has fewer restrictions, because bubblewrap creates namespaces, mounts and a host name:
 * RestrictNamespaces and ProtectHostname would forbid that. ProtectProc, ProtectKernelTunables and
 * ProtectKernelLogs are missing too: they cover files in /proc, and the kernel may then refuse to mount a new
 * /proc in the sandbox.
 */
export function renderAgentUnit({ declaration, command }: RenderOptions): string {
  const { name } = declaration;
  const service = `${name}-agent`;
  const run = systemdCommand([...command, 'agent']);
  return `# ${notice}
# An agent with its own user and data folder, /var/lib/${service}; the file agent.token there contains its token.
# The agent runs commands in bubblewrap: apt-get install bubblewrap
# Before the first start, write /etc/townhall/${service}.env, readable by root only: AGENT_GATEWAY_TOKEN=…, a user token of the gateway.
[Unit]
Description=Townhall agent ${name}
After=network-online.target ${name}.service
Wants=network-online.target

[Service]
Type=simple
DynamicUser=true
StateDirectory=${service}
StateDirectoryMode=0700
WorkingDirectory=%S/${service}
Environment=AGENT_DATA_DIR=%S/${service} AGENT_GATEWAY_URL=http://127.0.0.1:${portOf(declaration)}
EnvironmentFile=/etc/townhall/${service}.env
ExecStart=${run}
Restart=on-failure
RestartSec=2
KillMode=mixed
TimeoutStopSec=${stopSeconds}
UMask=0077
CapabilityBoundingSet=
AmbientCapabilities=
${commonHardening.join('\n')}
SystemCallFilter=@system-service @mount sethostname

[Install]
WantedBy=multi-user.target
`;
}

function shellWord(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

// Path settings of systemd take the rest of the line unquoted; percent signs start specifiers.
function systemdPath(path: string): string {
  return path.replaceAll('%', '%%');
}

/** In the arguments of a program, systemd replaces `${NAME}` by a variable and `$$` by one dollar sign. */
function systemdCommand([program = '', ...words]: readonly string[]): string {
  return [systemdWord(program), ...words.map((word) => systemdWord(word).replaceAll('$', '$$$$'))].join(' ');
}

function systemdWord(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word)
    ? word.replaceAll('%', '%%')
    : `"${word.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('%', '%%')}"`;
}
