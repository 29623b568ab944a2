"""Causes of claims that do not hold, by artefact and claim, with the numbers of a measurement that tests each.

A number is written ``{{record; row; column}}``. Of every other claim that does not hold the cause is unknown.
"""

from collections.abc import Mapping

CAUSES: Mapping[tuple[str, str], str] = {
    (
        "linlap-subnetwork",
        "10 % by the variances of a diagonal Laplace keep .7",
    ): (
        "It chooses weights that no output depends on, whose variance is the prior's: with 50 % of the weights the "
        "deviation on the data is {{linlap-subnetwork; toy: diag_variance, 50 %; sd on the data}}, with 50 % at random "
        "{{linlap-subnetwork; toy: random, 50 %; sd on the data}}, with all {{linlap-subnetwork; toy: full; sd on the "
        "data}}."
    ),
    (
        "dip-calibration",
        "With and without TV-PredCP coverage is nearer its level than dropout's",
    ): (
        "Its error is made where an image is empty or full. Over all pixels the error of coverage is "
        "{{dip-calibration; linearised DIP, evidence and TV-PredCP; mean error of coverage}}, dropout's "
        "{{dip-calibration; MC dropout, p = .4; mean error of coverage}}; over those between "
        "{{dip-calibration; linearised DIP, evidence and TV-PredCP; the same of pixels that the deep image prior has "
        "between 0.05 and 0.95}} and {{dip-calibration; MC dropout, p = .4; the same of pixels that the deep image "
        "prior has between 0.05 and 0.95}}."
    ),
    (
        "l2m-figure1",
        "As printed, it performs on par: NLL at most .1 nats above four methods'",
    ): (
        "1/λ + ε stands where a precision should: {{l2m-figure1; L2M as printed; weights near the width of their "
        "prior, %}} % of the weights keep the width of their prior, with the precision "
        "{{l2m-figure1; L2M corrected, linearised; weights near the width of their prior, %}} %, "
        "and the NLL is {{l2m-figure1; L2M corrected, linearised; test NLL, nats per point}} in place of "
        "{{l2m-figure1; L2M as printed; test NLL, nats per point}}."
    ),
    (
        "lae-table1",
        "… and memory quadratic in the resolution",
    ): (
        "Columns of the Jacobian can be pulled back a few at a time. With all at once memory has the power "
        "{{lae-figure7; BackPACK diag; memory, power of the pixels}} of the pixels, else "
        "{{lae-figure7; diag; memory, power of the pixels}}."
    ),
    (
        "lae-figure7",
        "… and in memory, whatever the program",
    ): (
        "As for Table 1: power {{lae-figure7; BackPACK diag; memory, power of the pixels}} with all columns at "
        "once, {{lae-figure7; kron; memory, power of the pixels}} with a few."
    ),
    (
        "lae-table2",
        "At equal temperature −log p of post-hoc is at least twice that of online",
    ): (
        "In print post-hoc networks are drawn at temperature 1. At 1/500 both have "
        "{{lae-table2; post-hoc, T = 0.002; −log p (squared error of drawn networks, summed)}} "
        "and {{lae-table2; online, recomputed, T = 0.002; −log p (squared error of drawn networks, summed)}}."
    ),
    (
        "lae-figure9",
        "Fashion-MNIST → MNIST: σ of a Laplacian autoencoder's output (refitted) detects better than a VAE by any "
        "score",
    ): (
        "A diagonal posterior is sensitive where an image has ink, and digits have less of it than clothes: post-hoc "
        "{{lae-detection; Fashion-MNIST → MNIST: LAE, post-hoc; AUROC by σ of the output}}. With KFAC, "
        "over the sensitivity to isotropic noise, it is {{lae-detection; Fashion-MNIST → MNIST: LAE, post-hoc, "
        "KFAC; AUROC by σ over isotropic}}. Trained online, σ over isotropic noise has {{lae-detection; "
        "Fashion-MNIST → MNIST: LAE, online, refitted; AUROC by σ over isotropic}} in place of {{lae-detection; "
        "Fashion-MNIST → MNIST: LAE, online, refitted; AUROC by σ of the output}}: a part."
    ),
    (
        "lae-figure10",
        "Fashion-MNIST → MNIST: LAE, post-hoc, σ is larger on others",
    ): (
        "As in Figure 9. The mean pixel alone has an AUROC of {{lae-detection; Fashion-MNIST → MNIST: image "
        "alone; AUROC by mean pixel}}: digits are darker."
    ),
    (
        "vl-table2",
        "… and so does one of VI with noise on the outputs of layers",
    ): (
        "Outputs are more than weights, and each needs noise of its own: {{vl-table2; LeNet: VI; steps "
        "of MAP}} steps of MAP. With drawn weights it takes {{vl-table2; LeNet: VI, drawn weights; steps of "
        "MAP}}."
    ),
    (
        "l2m-uci",
        "UCI: no extra computation: its posterior costs less than a pass with single gradients",
    ): (
        "The optimiser's state costs nothing to read ({{l2m-uci; energy; reading the state, % of training}} %); "
        "the pass for the statistics of the likelihood does, with 16 batches {{l2m-uci; yacht; with the statistics and "
        "16 batches, %}} % of training on yacht, beside {{l2m-uci; yacht; pass with single gradients, %}} % for the "
        "gradients."
    ),
    (
        "l2m-classification",
        "Images: detects better than MAP, at an NLL at most .05 nats higher",
    ): (
        "The evidence chooses how much uncertainty there is: with its prior the NLL is {{l2m-classification; "
        "Fashion-MNIST, LeNet: L2M, prior by the evidence; test NLL, nats}}. The same curvature tuned on held-out data "
        "has {{l2m-classification; Fashion-MNIST, LeNet: L2M, prior by held-out data; test NLL, nats}}, beside "
        "{{l2m-classification; Fashion-MNIST, LeNet: MAP; test NLL, nats}} of MAP, and on Fashion-MNIST still detects "
        "better."
    ),
    (
        "l2m-classification",
        "Images: NLL within .05 nats of that with single gradients",
    ): (
        "Adam's state averages squares of gradients over weights that still move, with the batch statistics of "
        "normalisation and the labels of the data. Taken again at the last weights with drawn labels (`refresh`), "
        "its NLL is {{l2m-classification; CIFAR-10, ResNet: L2M, drawn labels; test NLL, nats}} on CIFAR-10, "
        "beside {{l2m-classification; CIFAR-10, ResNet: diagonal, single gradients; test NLL, nats}} by single "
        "gradients. The three were not changed one by one."
    ),
    (
        "l2m-classification",
        "Images: the printed formula keeps MAP's accuracy, within a point",
    ): (
        "1/λ + ε stands where a precision should. With the precision the accuracy is {{l2m-classification; "
        "Fashion-MNIST, LeNet: L2M, prior by the evidence; accuracy, %}} %, in place of {{l2m-classification; "
        "Fashion-MNIST, LeNet: L2M as printed, sampled; accuracy, %}} %."
    ),
    (
        "foundation-worth",
        "… NLL .02 nats below that of temperature scaling",
    ): (
        "It is overconfident: its confidence is {{foundation-worth; osc.laplace, adapters and head; confidence less "
        "accuracy}} above its accuracy. With the best temperature under each, {{foundation-worth; osc.laplace, "
        "adapters and head; NLL at that temperature, nats}} and {{foundation-worth; temperature scaling; NLL at that "
        "temperature, nats}} remain."
    ),
}
