// The order of the guides in the navigation. Unlisted guides come last, so that every guide has a
// link.

const groups: readonly { title: string; guides: readonly string[] }[] = [
  { title: 'Start', guides: ['first-five-minutes', 'install', 'clients', 'connect', 'errors'] },
  {
    title: 'By task',
    guides: [
      'web-login-in-react',
      'agent-in-a-product',
      'key-with-a-budget',
      'providers-by-example',
      'from-litellm',
      'production-checklist',
      'upgrade',
    ],
  },
  { title: 'The gateway', guides: ['login-and-tokens', 'env-and-secrets', 'your-own-services'] },
  { title: 'Money', guides: ['credits', 'what-a-call-costs', 'payments'] },
  {
    title: 'Models',
    guides: [
      'model-providers',
      'formats',
      'format-members',
      'local-models',
      'reliability-of-models',
      'media',
    ],
  },
  { title: 'The agent', guides: ['agent', 'first-plugin', 'plugins', 'console'] },
  {
    title: 'Running it',
    guides: [
      'running',
      'settings',
      'operating',
      'storage-in-s3',
      'deploy',
      'kubernetes',
      'scaling',
      'telemetry',
    ],
  },
];

/** Groups pages such as `guides/agent.html`; groups without a page are omitted. */
export function groupGuides(pages: readonly string[]): { title: string; pages: string[] }[] {
  const pageOf = (guide: string) => `guides/${guide}.html`;
  const listedGuides = new Set([
    ...groups.flatMap(({ guides }) => guides.map(pageOf)),
    'start.html',
    'guides/error-codes.html',
  ]);
  const sections = groups.map(({ title, guides }) => ({
    title,
    pages: guides.map(pageOf).filter((page) => pages.includes(page)),
  }));
  sections[0]?.pages.unshift('start.html');
  return [...sections, { title: 'More', pages: pages.filter((page) => !listedGuides.has(page)) }].filter(
    (group) => group.pages.length > 0,
  );
}
