// Renders the Dockerfile of a project. Its image runs the gateway, or an agent when the command is replaced.
import { portOf } from './declaration.ts';
import {
  defaultBaseImage,
  dockerfilePath,
  healthProgram,
  labelOf,
  notice,
  quote,
  townhallPackage,
  volumesOf,
  type RenderOptions,
} from './render-options.ts';

// Excluded from the image: data, secrets, and build output. `data` is excluded only at the root, because a
// folder of sources may have this name too.
const ignoredPatterns = [
  'data',
  ...[
    '.git',
    '.townhall',
    'node_modules',
    '.env*',
    '.npmrc',
    '.netrc',
    '.pgpass',
    '.ssh',
    '.aws',
    '.gnupg',
  ].map(anywhere),
  ...[
    '*.key',
    '*.pem',
    '*.p12',
    '*.pfx',
    '*.jks',
    'id_rsa*',
    'id_ecdsa*',
    'id_ed25519*',
    '*.token',
    'credentials*.json',
    'service-account*.json',
  ].map(anywhere),
  ...['*.db', '*.db-*', '*.sqlite*', '*.backup', '*.dump', '*.log'].map(anywhere),
];

// Patterns of a .dockerignore are relative to the root; `**/` matches any number of folders,
// including none.
function anywhere(pattern: string): string {
  return `**/${pattern}`;
}

export function renderDockerignore(): string {
  return `# ${notice}\n${ignoredPatterns.join('\n')}\n`;
}

export function renderDockerfile(options: RenderOptions): string {
  const { declaration, version } = options;
  const port = portOf(declaration);
  const volumes = volumesOf(declaration)
    .map(({ path }) => path)
    .join(' ');
  const healthCheck = ['node', '-e', healthProgram("'http://127.0.0.1:' + process.env.PORT + '/ready'")];
  return `# ${notice}
# Build it from the project's folder: docker build -f ${dockerfilePath(options)} -t ${labelOf(declaration)} .
# podman build needs --format docker for the health check.
# A Debian image with Node and a user "node", such as a copy of this one in a registry of your own.
ARG BASE_IMAGE=${defaultBaseImage}
FROM \${BASE_IMAGE}
# bubblewrap is for an agent, which runs commands in a sandbox; compose.agent.yaml has the options for its container.
RUN apt-get update && apt-get install --yes --no-install-recommends bubblewrap && rm -rf /var/lib/apt/lists/*
# What npm installs: a version, or tarballs in the project's folder: "./townhall-1.tgz ./townhall-gateway-1.tgz"
ARG TOWNHALL_PACKAGE=${townhallPackage(version)}
COPY townhall.json *.tgz /packages/
RUN cd /packages && npm install --global \${TOWNHALL_PACKAGE} && npm cache clean --force
WORKDIR /city
COPY --chown=node:node . /city
RUN if [ -f package-lock.json ]; then npm ci --omit=dev; else npm install --omit=dev; fi && npm cache clean --force
RUN mkdir -p ${volumes} && chown node:node ${volumes}
USER node
ENV HOST=0.0.0.0 PORT=${port} DATABASE_PATH=/data/townhall.db STORAGE_PATH=/data/media JOURNAL_PATH=/data/journal
# Callers of a published port have the address of the container engine, which the local login might trust.
ENV LOCAL_LOGIN=false
EXPOSE ${port}
VOLUME ${volumes}
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=6s --start-period=30s CMD [${healthCheck.map(quote).join(', ')}]
CMD ["townhall", "gateway", "--project", "/city"]
`;
}
