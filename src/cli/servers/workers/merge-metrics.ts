// Merges the metrics of several processes into one text in Prometheus' format: each sample gets the
// label `worker`, and the samples of one metric are grouped below its comments.

export interface ProcessMetrics {
  worker: number;
  text: string;
}

export function mergeMetrics(processes: readonly ProcessMetrics[]): string {
  const families = new Map<string, { comments: Set<string>; samples: string[] }>();
  for (const { worker, text } of processes) {
    let family = familyOf(families, '');
    for (const line of text.split('\n')) {
      if (line === '') continue;
      if (line.startsWith('#')) {
        // "# HELP name …" and "# TYPE name …" come before the samples of a metric.
        family = familyOf(families, line.split(' ', 3)[2] ?? '');
        family.comments.add(line);
      } else {
        family.samples.push(withLabel(line, worker));
      }
    }
  }
  return [...families.values()]
    .filter(({ samples }) => samples.length > 0)
    .map(({ comments, samples }) => `${[...comments, ...samples].join('\n')}\n`)
    .join('\n');
}

function familyOf(families: Map<string, { comments: Set<string>; samples: string[] }>, name: string) {
  const family = families.get(name) ?? { comments: new Set<string>(), samples: [] };
  families.set(name, family);
  return family;
}

/** `name{a="b"} 1` or `name 1`, with the label added. */
function withLabel(sample: string, worker: number): string {
  const end = sample.search(/[{ ]/);
  const [name, sampleValue] = [sample.slice(0, end), sample.slice(end)];
  return sampleValue.startsWith('{')
    ? `${name}{worker="${worker}",${sampleValue.slice(1)}`
    : `${name}{worker="${worker}"}${sampleValue}`;
}
