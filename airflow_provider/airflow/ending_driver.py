"""End a driver on this machine that another process started: for another worker, or for a trigger."""

from __future__ import annotations

import logging
import signal

from airflow_provider.storage.claims import Claim, same_machine
from airflow_provider.storage.processes import Process, jvms_of

GRACE = 10.0
"""Seconds between SIGTERM and SIGKILL, as long as the process lives."""


def end_driver(claim: Claim, log: logging.Logger) -> bool:
    """End the process that holds *claim* if it runs on this machine: SIGTERM, then SIGKILL after a grace period.

    A matching process id is not enough: host, boot and process start must match the claim's, so that no other process
    is ever hit. The driver's JVM ends with it; one that does not, for example because it is paused, gets SIGKILL as
    well.

    :returns: whether it is known to have ended
    """
    if not same_machine(claim) or not claim.pid_started:
        log.info("Attempt %d runs on %s; its process is out of reach.", claim.epoch, claim.host or "an unknown host")
        return False
    driver = Process(claim.pid, claim.pid_started)
    jvms = jvms_of(driver)
    for number in (signal.SIGTERM, signal.SIGKILL):
        if driver.is_gone():
            break
        log.info("Attempt %d: sending %s to its driver, process %d", claim.epoch, number.name, claim.pid)
        try:
            driver.send(number)
        except PermissionError:
            log.warning("Process %d belongs to another user and cannot be ended.", claim.pid)
            return False
        driver.wait(GRACE)
    for jvm in jvms:
        if not jvm.wait(GRACE) and not jvm.kill():
            log.warning("Attempt %d: its JVM, process %d, could not be ended.", claim.epoch, jvm.pid)
            return False
    return driver.is_gone()
