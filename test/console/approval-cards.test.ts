// The focus among approval cards when the card that has it disappears, with stand-ins for the elements.
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { PendingApproval } from '../../src/console/pages/conversation/thread-state.ts';

interface Card {
  name: string;
  contains(other: unknown): boolean;
  remove(): void;
  focus(): void;
}

let activeElement: unknown;
let drawnCards: Card[];
let draw: (names: readonly string[]) => void;

const createCard = (name: string): Card => {
  const card: Card = {
    name,
    contains: (other) => other === card,
    // Like a browser, which moves the focus of a removed element to the body.
    remove() {
      drawnCards = drawnCards.filter((other) => other !== card);
      if (activeElement === card) activeElement = 'body';
    },
    focus: () => void (activeElement = card),
  };
  return card;
};

beforeEach(async () => {
  activeElement = 'body';
  drawnCards = [];
  const home = { focus: () => void (activeElement = 'home') };
  vi.stubGlobal('document', {
    get activeElement() {
      return activeElement;
    },
    querySelector: (selector: string) => (selector === '#composer' ? home : null),
  });
  const { createApprovalCards } = await import('../../src/console/pages/conversation/approval-card.ts');
  const parent = {
    contains: (other: unknown) => drawnCards.some((card) => card === other),
    append: (card: Card) => void drawnCards.push(card),
  };
  const drawApprovals = createApprovalCards(
    parent as unknown as HTMLElement,
    ({ approvalId }) => createCard(approvalId) as unknown as HTMLElement,
  );
  draw = (names) => drawApprovals(names.map((approvalId) => ({ approvalId }) as PendingApproval));
});
afterEach(() => vi.unstubAllGlobals());

describe('the focus of a removed approval card', () => {
  test.each([
    ['the next card', ['a', 'b', 'c'], 'b', ['a', 'c'], 'c'],
    ['the next card when earlier cards disappear as well', ['a', 'b', 'c', 'd'], 'b', ['c', 'd'], 'c'],
    ['the next remaining card', ['a', 'b', 'c', 'd'], 'b', ['a', 'd'], 'd'],
    ['the last card when no card follows', ['a', 'b', 'c'], 'c', ['a', 'b'], 'b'],
  ])('moves to %s', (_target, names, focusedName, remainingNames, nextName) => {
    draw(names);
    drawnCards.find(({ name }) => name === focusedName)?.focus();
    draw(remainingNames);
    expect(activeElement).toMatchObject({ name: nextName });
  });

  test('moves to the composer when no card is left', () => {
    draw(['a', 'b']);
    drawnCards[0]?.focus();
    draw([]);
    expect(activeElement).toBe('home');
  });
});
