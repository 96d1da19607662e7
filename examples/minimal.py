"""A federation of MoCo clients, an attack on its model, and an AUC with its limits."""

from copy import deepcopy

import torch
from torch import nn
from torch.nn.functional import interpolate, normalize

SIDE, DIM, BATCH, EPOCHS, RATE, MOMENTUM, TEMPERATURE = 16, 64, 4, 15, 0.1, 0.99, 0.1


def augment(images):
    """Cut a random square of at least 13 x 13 pixels out of the images, and resize it to theirs."""
    size = int(torch.randint(13, SIDE + 1, ()))
    top, left = torch.randint(SIDE + 1 - size, (2,)).tolist()
    return interpolate(images[:, :, top : top + size, left : left + size], SIDE, mode="bilinear")


def draw_batches(images):
    """Draw two views of every image in each epoch, batch by batch."""
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(images)).split(BATCH):
            yield augment(images[rows]), augment(images[rows])


def train_client(model, queue, batches):
    """Train a copy of the model by MoCo; the queue (K, DIM) changes. Returns what is sent."""
    encoder, key_encoder, oldest = deepcopy(model), deepcopy(model), 0
    sgd = torch.optim.SGD(encoder.parameters(), lr=RATE, momentum=0.9)
    for view1, view2 in batches:
        q, k = normalize(encoder(view1)), normalize(key_encoder(view2)).detach()
        logits = torch.cat([(q * k).sum(1, keepdim=True), q @ queue.T], dim=1) / TEMPERATURE
        sgd.zero_grad()
        (logits.logsumexp(dim=1) - logits[:, 0]).mean().backward()
        sgd.step()
        for slow, fast in zip(key_encoder.parameters(), encoder.parameters(), strict=True):
            slow.data.lerp_(fast.data, 1 - MOMENTUM)
        queue[(oldest + torch.arange(len(k))) % len(queue)] = k
        oldest += len(k)
    return encoder.state_dict()


def train_round(model, clients):
    """Let each client, a queue and batches, train the model; it becomes their mean (FedAvg)."""
    updates = [train_client(model, queue, batches) for queue, batches in clients]
    mean = {n: torch.stack([u[n] for u in updates]).double().mean(dim=0) for n in updates[0]}
    model.load_state_dict(mean)


@torch.no_grad()
def similarity(model, views):
    """Score images (N,) by the mean cosine of all pairs of their views (N, V, 1, SIDE, SIDE)."""
    z = normalize(model(views.flatten(0, 1)).double()).unflatten(0, views.shape[:2])
    return (z @ z.mT)[:, *torch.triu_indices(z.shape[1], z.shape[1], offset=1)].mean(dim=1)


def auc_with_limits(members, others):
    """Estimate the AUC of scores (n,) and (m,), with its lower and upper limit at 95 %."""
    wins = (members[:, None] > others) + 0.5 * (members[:, None] == others).double()
    auc, (n, m) = wins.mean(), wins.shape
    v, w = wins.mean(dim=1).var() / n, wins.mean(dim=0).var() / m  # DeLong's variance: v + w
    freedom = (v + w) ** 2 / (v**2 / (n - 1) + w**2 / (m - 1))
    t = 1.959964 + 2.372271 / freedom + 2.822503 / freedom**2 + 2.555853 / freedom**3  # Student's
    doubt = 1 / (1 + min(n, m) * auc * (1 - auc) / 1.5) ** 3
    s = t**2 * ((1 - doubt) * (v + w) / (auc * (1 - auc)) + doubt / min(n, m))
    half = (s * (auc * (1 - auc) + s / 4)).sqrt()  # Wilson's interval
    return auc, (auc + s / 2 - half) / (1 + s), (auc + s / 2 + half) / (1 + s)


if __name__ == "__main__":
    torch.manual_seed(3)
    images = interpolate(torch.randn(248, 1, 6, 6), SIDE, mode="bicubic")
    parts = images[:48].split(16)  # of three clients; on the other images nobody trains
    model = nn.Sequential(nn.Flatten(), nn.Linear(SIDE**2, 256), nn.ReLU(), nn.Linear(256, DIM))
    views = torch.stack([augment(images) for _ in range(24)], dim=1)
    for round in range(5):
        if round > 0:
            train_round(model, [(normalize(torch.randn(8, DIM)), draw_batches(p)) for p in parts])
        auc, low, high = auc_with_limits(*similarity(model, views).split([48, 200]))
        print(f"after {round} rounds: AUC {auc:.2f} [{low:.2f}, {high:.2f}]")
