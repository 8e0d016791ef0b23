// Renders the systemd units of a project: one that runs its gateway, one that runs an agent.
import { posix } from 'node:path';
import { portOf, type Declaration } from './declaration.ts';
import { notice, stopSeconds, type RenderOptions } from './render-options.ts';

// With sudo the rendering user is root; the unit must not run as root.
const serviceUser = 'townhall';

export function renderUnit(options: RenderOptions): string {
  const { declaration, directory, user, command } = options;
  const run = [...command, 'city', 'run', '--project', directory].map(systemdWord).join(' ');
  const setup = setupCommands(options).map((line) => `#   ${line}`);
  return `# ${notice}
# It serves the version that was deployed last, also after a reboot; "townhall deploy" finds it running and hands over.
# Secrets belong into the environment file, for its owner alone: TOWNHALL_MASTER_KEY=…, DATABASE_URL=…
# These commands start it. Deploy as its user from then on.
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

/** The first deployment starts a supervisor of its own, which the unit replaces. */
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
 * Restrictions that fit both units. V8 compiles code at run time, so MemoryDenyWriteExecute would
 * end it.
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
 * bubblewrap makes namespaces, mounts and a host name, which RestrictNamespaces and ProtectHostname
 * forbid. The kernel may refuse it a new /proc where files of the outer one are covered, so
 * ProtectProc, ProtectKernelTunables and ProtectKernelLogs are left out too.
 */
export function renderAgentUnit({ declaration, command }: RenderOptions): string {
  const { name } = declaration;
  const service = `${name}-agent`;
  const run = [...command, 'agent'].map(systemdWord).join(' ');
  return `# ${notice}
# An agent with a user and a data folder of its own, /var/lib/${service}; its token is in agent.token there.
# Programs of its commands need bubblewrap: apt-get install bubblewrap
# Write /etc/townhall/${service}.env before the first start, for root alone: AGENT_GATEWAY_TOKEN=…, a user token of the gateway.
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

function systemdWord(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word)
    ? word.replaceAll('%', '%%')
    : `"${word.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('%', '%%')}"`;
}
