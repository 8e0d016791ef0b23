// The sections of a page for the search.
import { expect, test } from 'vitest';
import { renderMarkdown } from '../../scripts/docs/markdown.ts';

test.each(['- # Nested', '> # Nested', '> - # Nested'])('keep their anchors after the block %j', (block) => {
  const { sections, html } = renderMarkdown(`# Page\n\n${block}\n\n## Last\n\nText.\n`, {
    source: 'docs/page.md',
    page: 'page.html',
    pageOf: () => undefined,
    readDiagram: () => '',
    writePicture: () => '',
  });
  expect(html).toContain('id="nested"');
  expect(sections.map(({ anchor, heading }) => [anchor, heading])).toEqual([
    ['page', 'Page'],
    ['last', 'Last'],
  ]);
  expect(sections[1]?.text.trim()).toBe('Text.');
});
