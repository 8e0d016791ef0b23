// The order of the guides in the navigation. Unlisted guides come last, so that every guide has a
// link.

const groups: readonly { title: string; guides: readonly string[] }[] = [
  { title: 'Start', guides: ['first-five-minutes', 'clients', 'connect', 'errors', 'from-litellm'] },
  { title: 'The gateway', guides: ['login-and-tokens', 'env-and-secrets', 'your-own-services'] },
  { title: 'Money', guides: ['credits', 'key-with-a-budget', 'what-a-call-costs', 'payments'] },
  {
    title: 'Models',
    guides: [
      'model-providers',
      'providers-by-example',
      'formats',
      'format-members',
      'local-models',
      'reliability-of-models',
      'media',
    ],
  },
  { title: 'The agent', guides: ['agent', 'plugins', 'console'] },
  {
    title: 'Running it',
    guides: [
      'running',
      'production-checklist',
      'settings',
      'operating',
      'storage-in-s3',
      'deploy',
      'kubernetes',
      'install',
      'upgrade',
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
