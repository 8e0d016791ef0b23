// How long the database has answered without interruption.
import { expect, test } from 'vitest';
import { DatabaseContact } from '../../../src/gateway/credits/allotments/database-contact.ts';

function contactAt(startMs: number) {
  const clock = { nowMs: startMs, monotonicMs: () => clock.nowMs };
  return { clock, contact: new DatabaseContact(clock) };
}

test('the contact lasts until an error', () => {
  const { clock, contact } = contactAt(1_000);
  contact.recordAnswer();
  for (const nowMs of [6_000, 11_000]) {
    clock.nowMs = nowMs;
    contact.recordAnswer();
  }
  expect(contact.unbrokenMs()).toBe(10_000);
  contact.recordError();
  expect(contact.unbrokenMs()).toBe(0);
});

test('the contact restarts after the process was suspended', () => {
  const { clock, contact } = contactAt(1_000);
  contact.recordAnswer();
  // More than 15 s without an answer counts as a suspension.
  clock.nowMs = 91_000;
  expect(contact.unbrokenMs()).toBe(0);
  contact.recordAnswer();
  clock.nowMs = 92_000;
  expect(contact.unbrokenMs()).toBe(1_000);
});
